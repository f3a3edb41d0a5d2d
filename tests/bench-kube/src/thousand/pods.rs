// SPDX-License-Identifier: Apache-2.0
//! Starts and ends all pods of a side.

use crate::{AT_ONCE, Scale};
use apiserver::Server;
use bench_kube::call::{Answer, run};
use bench_kube::kubelet::{self, Runtime, Started};
use bench_kube::sides::{Given, Sandbox, Side, Witness};
use bench_kube::witness::Assignment;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// The longest time after the last DEL until records count as leaked.
const SETTLE: Duration = Duration::from_secs(60);

/// The time after which a call without a time limit checks again for a permit.
const LOOK: Duration = Duration::from_secs(1);

/// The number of pods between two lines about the progress.
const PROGRESS: usize = 100;

/// The measurements of a side.
pub(crate) struct Outcome {
    pub(crate) title: &'static str,
    pub(crate) addresses: u32,
    /// The load average at the start.
    pub(crate) load: String,
    pub(crate) starts: Vec<Started>,
    /// The times from the first ADD until the pods had their addresses, in ascending order.
    pub(crate) times: Vec<Duration>,
    pub(crate) add_requests: usize,
    pub(crate) given: Vec<Given>,
    pub(crate) witnesses: Vec<Witness>,
    /// The time from the first DEL to the last.
    pub(crate) ends: Duration,
    pub(crate) refused_dels: usize,
    pub(crate) del_requests: usize,
    /// The records after the last DEL.
    pub(crate) at_once: Vec<Witness>,
    /// The records when the last one was gone, or after [`SETTLE`].
    pub(crate) settled: Vec<Witness>,
    /// The time from the last DEL to `settled`.
    pub(crate) settling: Duration,
}

/// The permits of a node for calls.
struct Permits {
    free: Mutex<usize>,
    returned: Condvar,
}

impl Permits {
    fn new() -> Self {
        Self {
            free: Mutex::new(AT_ONCE),
            returned: Condvar::new(),
        }
    }

    /// Runs `work` with a permit. `None` if no permit was free before `deadline`.
    fn with<T>(&self, deadline: Option<Instant>, work: impl FnOnce() -> T) -> Option<T> {
        let mut free = self.free.lock().unwrap();
        loop {
            let left = deadline.map_or(LOOK, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            if *free > 0 {
                break;
            }
            free = self.returned.wait_timeout(free, left).unwrap().0;
        }
        *free -= 1;
        drop(free);
        let result = work();
        *self.free.lock().unwrap() += 1;
        self.returned.notify_one();
        Some(result)
    }
}

/// The runtime of one pod.
struct Pod<'s, S> {
    side: &'s S,
    permits: &'s Permits,
    node: usize,
    name: String,
}

impl<S: Side> Pod<'_, S> {
    fn call(&self, verb: &'static str, sandbox: &str) -> Answer {
        let sandbox = Sandbox {
            node: self.node,
            pod: &self.name,
            id: sandbox,
        };
        run(&self.side.call(verb, sandbox))
    }
}

impl<S: Side> Runtime for Pod<'_, S> {
    fn add(&self, sandbox: &str, deadline: Instant) -> Option<Answer> {
        self.permits.with(Some(deadline), || self.call("ADD", sandbox))
    }

    fn del(&self, sandbox: &str) -> Answer {
        self.permits.with(None, || self.call("DEL", sandbox)).unwrap()
    }

    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Starts and ends all pods, and compares the records in between and afterwards.
pub(crate) async fn measure<S: Side>(server: &Server, side: &S, scale: Scale) -> Outcome {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let requests = |mark| {
        let (requests, user) = (server.requests_since(mark), side.user());
        requests.iter().filter(|request| request.user() == user).count()
    };
    let (begun, mark) = (Instant::now(), server.mark());
    let starts = each(side, scale, "start", |_, pod| {
        kubelet::start(&pod.name, begun + scale.limit, pod)
    });
    let add_requests = requests(mark);
    let with_address = starts.iter().filter(|pod| pod.address.is_some());
    let mut times: Vec<Duration> = with_address.map(|pod| pod.at - begun).collect();
    times.sort_unstable();
    let given = given(&starts, scale);
    let witnesses = side.witnesses(&given).await;
    let (begun, mark) = (Instant::now(), server.mark());
    // A runtime has called DEL for the last sandbox of a pod without an address already.
    let refused = each(side, scale, "end", |i, pod| match starts[i].address {
        Some(_) => kubelet::end(&starts[i].sandbox, begun + scale.limit, pod),
        None => 0,
    });
    let (ends, del_requests) = (begun.elapsed(), requests(mark));
    let ended = Instant::now();
    let at_once = side.witnesses(&[]).await;
    let mut settled = at_once.clone();
    while settled.iter().any(|witness| witness.difference.leaked > 0) && ended.elapsed() < SETTLE {
        tokio::time::sleep(Duration::from_millis(500)).await;
        settled = side.witnesses(&[]).await;
    }
    Outcome {
        title: side.title(),
        addresses: side.addresses(),
        load: load.split(' ').next().unwrap().to_owned(),
        starts,
        times,
        add_requests,
        given,
        witnesses,
        ends,
        refused_dels: refused.iter().sum(),
        del_requests,
        at_once,
        settled,
        settling: ended.elapsed(),
    }
}

/// Runs `work` for each pod, all pods in parallel. Returns the results in the order of the pods.
fn each<S: Side, T: Send>(
    side: &S,
    scale: Scale,
    what: &str,
    work: impl Fn(usize, &Pod<'_, S>) -> T + Sync,
) -> Vec<T> {
    let nodes = usize::try_from(scale.nodes).unwrap();
    let permits: Vec<Permits> = (0..nodes).map(|_| Permits::new()).collect();
    let done = AtomicUsize::new(0);
    let begun = Instant::now();
    let one = |i: usize| {
        let node = i % nodes;
        let pod = Pod {
            side,
            permits: &permits[node],
            node,
            name: format!("pod-{i}"),
        };
        let result = work(i, &pod);
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(PROGRESS) {
            let seconds = begun.elapsed().as_secs_f64();
            eprintln!(
                "bench-thousand: {}: {what}: {done} pods in {seconds:.1} s",
                side.title()
            );
        }
        result
    };
    let one = &one;
    // The agents are tasks of this process and continue meanwhile.
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let pods = (0..usize::try_from(scale.pods).unwrap()).map(|i| scope.spawn(move || one(i)));
            let pods: Vec<_> = pods.collect();
            pods.into_iter().map(|pod| pod.join().unwrap()).collect()
        })
    })
}

/// The addresses that the pods got.
fn given(starts: &[Started], scale: Scale) -> Vec<Given> {
    let nodes = usize::try_from(scale.nodes).unwrap();
    let starts = starts.iter().enumerate();
    let given = starts.filter_map(|(i, started)| {
        Some(Given {
            node: i % nodes,
            assignment: Assignment {
                address: started.address?,
                pod: format!("default/pod-{i}"),
            },
        })
    });
    given.collect()
}
