// SPDX-License-Identifier: Apache-2.0
//! A machine: a directory with the store, an agent, and a kubelet that starts and ends pods.

mod plugin;

use crate::World;
use crate::pool::{COOLDOWN, Pool};
use crate::replicas::{REPLICAS, pool_of};
use crate::tally::Tally;
use agents::program;
use apiserver::objects::{self, try_create};
use apiserver::{Fault, Identity, Proxy};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use kube::{Client, ResourceExt};
use plugin::{Answer, Given};
use serde_json::json;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tests::Daemon;

/// The UID of a pod without an object.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// The highest number of pods on a machine.
const PODS: usize = 50;

/// A pod that has an address, or whose ADD was killed.
pub(crate) struct Living {
    pub(crate) container: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) pool: Pool,
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether the pod's main plugin probes addresses.
    pub(crate) probes: bool,
    /// The replica's ordinal, if the pod belongs to the `StatefulSet`.
    pub(crate) ordinal: Option<usize>,
    /// Whether the API server has an object of the pod.
    pub(crate) object: bool,
}

/// A machine.
pub(crate) struct Machine {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) tally: Tally,
    pub(crate) pods: Vec<Living>,
    admin: Client,
    identity: Identity,
    proxy: Proxy,
    agent: Daemon,
    random: fastrand::Rng,
    counter: u64,
}

impl Machine {
    /// Joins the cluster and starts the agent.
    pub(crate) async fn join(world: Arc<World>, number: u64, random: fastrand::Rng) -> Self {
        let name = format!("machine-{number}");
        let dir = world.server.dir().join(&name);
        std::fs::create_dir_all(dir.join("netns")).unwrap();
        let admin = world.server.admin().await;
        let identity = Identity::new(&admin, &name).await;
        let proxy = Proxy::start(&world.server).await;
        let agent = Daemon::new(format!("the agent of {name}"), &dir.join("agent.log"));
        let machine = Self {
            world,
            name,
            dir,
            tally: Tally::default(),
            pods: Vec::new(),
            admin,
            identity,
            proxy,
            agent,
            random,
            counter: 0,
        };
        machine.start_agent();
        machine
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The directory of a pool.
    pub(crate) fn pool(&self, pool: Pool) -> PathBuf {
        self.data().join("pools").join(pool.name())
    }

    fn start_agent(&self) {
        let config = self.proxy.before(self.identity.config(&self.world.server));
        let file = self.dir.join("kubeconfig");
        std::fs::write(&file, serde_norway::to_string(&config).unwrap()).unwrap();
        let mut command = Command::new(program("rdmanet-agent"));
        command
            .env("KUBECONFIG", file)
            .env("RDMANET_NODE", &self.name)
            .env("RDMANET_DATA_DIR", self.data())
            .env("RDMANET_AGENT_SOCKET", self.dir.join("s"))
            .args(["--listen", "127.0.0.1:0"])
            .args(["--quarantine", crate::QUARANTINE])
            // A machine is removed only after its death.
            .args(["--quarantine-in-use", crate::QUARANTINE])
            .args(["--short-quarantine-for-tests", "--idle", "2s"])
            .args(["--observation-interval", "1s", "--report-interval", "1s"])
            .args(["--reconcile-interval", "300ms"]);
        self.agent.spawn(&mut command);
    }

    /// Creates and ends pods and injects faults until the run has enough operations.
    pub(crate) async fn live(mut self) -> Self {
        while !self.world.is_over() {
            match self.random.u32(0..1000) {
                0..8 => self.kill_and_restart_agent().await,
                8..14 => self.disconnect().await,
                14..17 => self.fail_power().await,
                17..25 => self.inject_faults(),
                n if self.is_filling(n) => self.begin().await,
                _ => self.end().await,
            }
        }
        self
    }

    /// Alternates between filling up and emptying the machine, so that its agent claims and returns blocks.
    fn is_filling(&self, n: u32) -> bool {
        let filling = (self.counter / 120).is_multiple_of(2);
        let share = if filling { 700 } else { 400 };
        self.pods.is_empty() || (self.pods.len() < PODS && n < share)
    }

    async fn begin(&mut self) {
        let Some(mut living) = self.new_pod().await else {
            return;
        };
        let killed = self.random.u32(0..40) == 0;
        let after = killed.then(|| Duration::from_micros(self.random.u64(0..20_000)));
        let answer = self.call("ADD", &living, after).await;
        self.world.count();
        match answer {
            Answer::Killed => self.tally.killed += 1,
            Answer::Refused(code, text) => {
                // A refusal is correct while other nodes have all addresses, or the agent cannot be reached, or the
                // agent has not reached the API server for the first time.
                let early = code == 116 && text.contains("pool.json is not there");
                assert!(
                    early || [11, 110, 118, 119].contains(&code),
                    "{}: ADD of {} failed with {code}: {text}",
                    self.name,
                    living.container
                );
                self.tally.refused += 1;
            }
            Answer::Done(given) => self.record(&mut living, &given),
        }
        // A DEL follows a refused or killed ADD too, as with real runtimes.
        self.pods.push(living);
    }

    /// Records the addresses of an ADD. An address of another pod fails the run, and so does one that has not rested
    /// and is not to be probed. A replica's own address need not rest.
    fn record(&mut self, living: &mut Living, given: &[Given]) {
        living.addresses.extend(given.iter().map(|address| address.ip));
        let mut returned = false;
        if let Some(ordinal) = living.ordinal {
            returned = self.world.replicas.given(ordinal, &living.addresses);
            self.tally.kept += 1;
        }
        for address in given {
            let rested = self.world.ledger.rested(address.ip);
            assert!(
                address.probe || returned || rested.is_none_or(|rested| rested >= COOLDOWN),
                "{}: {} of {} was released {rested:?} ago and is not to be probed",
                self.name,
                address.ip,
                living.container
            );
            self.world.ledger.given(address.ip, &living.container);
            self.tally.probed += u64::from(address.probe);
        }
        self.tally.adds += 1;
    }

    /// A new container of a new pod. One pod of four has an object: while the API server is away, a kubelet starts
    /// sandboxes of pods that it knows. One of twelve is a replica, which gets its address only with an object. One of
    /// sixteen of the others gets an address that is an object. More of both would mostly wait for the API server.
    async fn new_pod(&mut self) -> Option<Living> {
        self.counter += 1;
        let container = format!("{}-{}", self.name, self.counter);
        let from = self.random.usize(0..REPLICAS);
        let ordinal = (self.random.u32(0..12) == 0)
            .then(|| self.world.replicas.begin(from))
            .flatten();
        let pod = ordinal.map_or_else(|| format!("{container}-pod"), |ordinal| format!("db-{ordinal}"));
        let mut uid = None;
        if ordinal.is_some() || self.random.u32(0..4) == 0 {
            let owner = ordinal.map(|_| self.world.replicas.owner());
            let metadata = json!({ "name": pod, "ownerReferences": owner });
            let made = try_create(&self.kubelet(), objects::pod(&metadata, &self.name)).await;
            uid = made.ok().and_then(|pod| pod.uid());
        }
        if let Some(ordinal) = ordinal.filter(|_| uid.is_none()) {
            // The API server may have created the object although the request failed.
            self.remove_pod(&pod).await;
            self.world.replicas.end(ordinal);
            return None;
        }
        std::fs::write(self.netns(&container), "").unwrap();
        let alone = self.random.u32(0..16) == 0;
        let other = if alone { Pool::PerAddress } else { Pool::Blocks };
        Some(Living {
            container,
            pod,
            object: uid.is_some(),
            uid: uid.unwrap_or_else(|| NO_UID.to_owned()),
            pool: ordinal.map_or(other, pool_of),
            addresses: Vec::new(),
            probes: self.random.bool(),
            ordinal,
        })
    }

    fn kubelet(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), "default")
    }

    pub(crate) fn netns(&self, container: &str) -> PathBuf {
        self.dir.join("netns").join(container)
    }

    async fn end(&mut self) {
        if self.pods.is_empty() {
            return;
        }
        let living = self.pods.swap_remove(self.random.usize(0..self.pods.len()));
        if self.random.u32(0..25) == 0 {
            self.end_without_del(living).await;
        } else {
            self.end_pod(&living).await;
        }
    }

    /// Ends a pod regularly.
    pub(crate) async fn end_pod(&mut self, living: &Living) {
        self.world.ledger.ended(&living.addresses);
        if self.random.u32(0..40) == 0 {
            let after = Duration::from_micros(self.random.u64(0..10_000));
            self.call("DEL", living, Some(after)).await;
            self.tally.killed += 1;
        }
        self.del(living).await;
        self.world.count();
        self.tally.dels += 1;
        self.delete_object(living).await;
    }

    /// Calls DEL, which must succeed, and removes the pod's namespace.
    async fn del(&self, living: &Living) {
        let answer = self.call("DEL", living, None).await;
        assert!(
            matches!(answer, Answer::Done(_)),
            "{}: DEL needs neither agent nor API server: {answer:?}",
            self.name
        );
        let _ = std::fs::remove_file(self.netns(&living.container));
    }

    /// Ends a pod without DEL.
    async fn end_without_del(&mut self, living: Living) {
        std::fs::remove_file(self.netns(&living.container)).unwrap();
        self.world.ledger.ended(&living.addresses);
        self.tally.forgotten += 1;
        self.delete_object(&living).await;
    }

    /// Deletes the object of a pod, if it may exist.
    async fn delete_object(&self, living: &Living) {
        if living.object || living.ordinal.is_some() {
            self.remove_pod(&living.pod).await;
        }
        if let Some(ordinal) = living.ordinal {
            self.world.replicas.end(ordinal);
        }
    }

    /// Deletes a pod's object, and retries until the API server has none.
    pub(crate) async fn remove_pod(&self, pod: &str) {
        let now = DeleteParams::default().grace_period(0);
        for _ in 0..600 {
            match self.kubelet().delete(pod, &now).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        }
        panic!("{}: pod {pod} cannot be deleted", self.name);
    }

    async fn kill_and_restart_agent(&mut self) {
        self.agent.kill();
        self.tally.agents_killed += 1;
        // Meanwhile the machine creates and ends pods.
        for _ in 0..self.random.u32(0..20) {
            if self.pods.len() < PODS && self.random.bool() {
                self.begin().await;
            } else {
                self.end().await;
            }
        }
        self.start_agent();
    }

    async fn disconnect(&mut self) {
        self.proxy.cut();
        self.tally.cuts += 1;
        for _ in 0..self.random.u32(0..20) {
            if self.pods.len() < PODS && self.random.bool() {
                self.begin().await;
            } else {
                self.end().await;
            }
        }
        self.proxy.mend();
    }

    /// Lets some of the agent's requests fail from now on, in ways that change now and then.
    fn inject_faults(&mut self) {
        let mut random = self.random.fork();
        let often = [0, 0, 2, 10, 40][random.usize(0..5)];
        self.proxy.decide(move |_, _| {
            if random.u32(0..100) >= often {
                return Fault::None;
            }
            match random.u32(0..5) {
                0 => Fault::Status(429),
                1 => Fault::Status(500),
                2 => Fault::LoseRequest,
                3 => Fault::LoseAnswer,
                _ => Fault::Delay(Duration::from_millis(random.u64(0..2000))),
            }
        });
    }

    /// Simulates a power failure: agent and pods end, and the files on the disk are those of an earlier boot. Sometimes
    /// the Node object is deleted before the machine returns under its old name.
    async fn fail_power(&mut self) {
        self.agent.kill();
        self.tally.deaths += 1;
        for living in std::mem::take(&mut self.pods) {
            self.world.ledger.ended_with_node(&living.addresses);
            let _ = std::fs::remove_file(self.netns(&living.container));
            self.delete_object(&living).await;
        }
        age_by_a_boot(&self.data());
        if self.random.bool() {
            self.tally.removals += 1;
            self.retry("leave", async |machine| {
                machine.identity.try_leave(&machine.admin).await
            })
            .await;
            tokio::time::sleep(Duration::from_millis(self.random.u64(0..15_000))).await;
            self.retry("join", async |machine| {
                machine.identity = Identity::try_new(&machine.admin, &machine.name).await?;
                Ok(())
            })
            .await;
        }
        // A runtime may start pods before the agent runs.
        if self.random.bool() {
            self.begin().await;
        }
        self.start_agent();
    }

    /// Retries while the API server is away.
    async fn retry(
        &mut self,
        what: &str,
        mut attempt: impl AsyncFnMut(&mut Self) -> Result<(), kube::Error>,
    ) {
        for _ in 0..600 {
            match attempt(self).await {
                Ok(()) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
            }
        }
        panic!("{}: cannot {what}", self.name);
    }

    /// The end of the agent's log.
    pub(crate) fn log_tail(&self) -> String {
        self.agent.last_words()
    }

    /// Ends all faults.
    pub(crate) fn end_faults(&mut self) {
        self.proxy.decide(|_, _| Fault::None);
        self.proxy.mend();
        if !self.agent.is_started() {
            self.start_agent();
        }
    }

    /// Calls ADD for a new pod without an object. If it fails, calls DEL as a runtime does, and returns false.
    pub(crate) async fn try_begin(&mut self, pool: Pool) -> bool {
        self.counter += 1;
        let container = format!("{}-{}", self.name, self.counter);
        std::fs::write(self.netns(&container), "").unwrap();
        let mut living = Living {
            pod: format!("{container}-pod"),
            container,
            uid: NO_UID.to_owned(),
            pool,
            addresses: Vec::new(),
            probes: false,
            ordinal: None,
            object: false,
        };
        let Answer::Done(given) = self.call("ADD", &living, None).await else {
            self.del(&living).await;
            return false;
        };
        self.record(&mut living, &given);
        true
    }
}

/// Makes the files below `data` look like those of an earlier boot.
fn age_by_a_boot(data: &Path) {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let earlier = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    let (boot, earlier) = (boot.trim(), earlier.trim());
    for pool in std::fs::read_dir(data.join("pools")).into_iter().flatten() {
        let pool = pool.unwrap().path();
        let leases = pool.join(format!("boot-{boot}"));
        if leases.exists() {
            std::fs::rename(leases, pool.join(format!("boot-{earlier}"))).unwrap();
        }
        let file = pool.join("pool.json");
        if let Ok(text) = std::fs::read_to_string(&file) {
            std::fs::write(file, text.replace(boot, earlier)).unwrap();
        }
    }
}
