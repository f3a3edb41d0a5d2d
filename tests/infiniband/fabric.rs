// SPDX-License-Identifier: Apache-2.0
//! The fabric as a node, for one test at a time: its ports are up and its cables plugged in.

use common::netlink::{NetnsMode, Rdma, Socket};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use tests::traces::assert_same;
use tests::{Conf, Node, Pod, Traces, Value, json, within};

/// The time limit of every operation of the fabric, in emulation on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const PORTS: [&str; 3] = ["ib0", "ib1", "ib2"];
const MODULE: &str = "devices=3 pkeys=0xffff,0x8001";

/// Runs `test` on the VM's own network, and asserts that it leaves nothing behind.
pub(crate) fn run(test: impl FnOnce(&Node) + Send) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(
        Path::new("/sys/class/infiniband/softib2").exists(),
        "this node has no softib2: these tests run in the VM, tests/fabric/run --hcas 3 --pkeys 0xffff,0x8001"
    );
    Node::on_this_machine(|node| {
        bring_up(node);
        let before = traces(node);
        match catch_unwind(AssertUnwindSafe(|| test(node))) {
            Ok(()) => assert_same(&before, &traces(node), "after the test"),
            Err(failure) => {
                restore(node);
                resume_unwind(failure);
            }
        }
    });
}

/// The state of the node, sorted: the kernel appends a link that was created again to its list.
fn traces(node: &Node) -> Traces {
    let mut traces = node.traces(&[]);
    traces.node.sort();
    traces
}

/// Like [`run`], on a fabric whose module has another parameter, such as `group_mtu=2048`.
pub(crate) fn run_with(parameter: &str, test: impl FnOnce(&Node) + Send) {
    run(|node| {
        reload(node, &format!("{MODULE} {parameter}"));
        let outcome = catch_unwind(AssertUnwindSafe(|| test(node)));
        reload(node, MODULE);
        outcome.unwrap_or_else(|failure| resume_unwind(failure));
    });
}

/// Like [`run`], with the RDMA subsystem in exclusive mode. The kernel accepts a change of the mode only without pods.
///
/// A moved HCA returns with new links, so the module is loaded again at the end.
pub(crate) fn run_exclusive(test: impl FnOnce(&Node) + Send) {
    run(|node| {
        set_netns_mode(NetnsMode::Exclusive);
        let outcome = catch_unwind(AssertUnwindSafe(|| test(node)));
        set_netns_mode(NetnsMode::Shared);
        reload(node, MODULE);
        outcome.unwrap_or_else(|failure| resume_unwind(failure));
    });
}

/// Like [`run`], on a fabric with another number of HCAs. Their ports are `ib0`, `ib1`, ...
pub(crate) fn run_on(hcas: usize, test: impl FnOnce(&Node) + Send) {
    run(|node| {
        load(node, &format!("devices={hcas} pkeys=0xffff,0x8001"));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let ports: Vec<String> = (0..hcas).map(|number| format!("ib{number}")).collect();
            bring_up_ports(node, &ports);
            test(node);
        }));
        reload(node, MODULE);
        outcome.unwrap_or_else(|failure| resume_unwind(failure));
    });
}

/// Runs `test` with so many of the last HCAs as virtual functions of `softib0`. Their ports are down until their link
/// state is set.
pub(crate) fn with_functions(node: &Node, functions: usize, test: impl FnOnce()) {
    load(node, &format!("{MODULE} functions={functions}"));
    let ports = PORTS.map(str::to_owned);
    let (physical, virtual_ones) = ports.split_at(PORTS.len() - functions);
    bring_up_ports(node, physical);
    for port in virtual_ones {
        node.ip(&format!("link set {port} up"));
    }
    let outcome = catch_unwind(AssertUnwindSafe(test));
    reload(node, MODULE);
    outcome.unwrap_or_else(|failure| resume_unwind(failure));
}

/// Like [`run`], with these HCAs accelerated: `""` for none, `"0"` for the first, `"all"`.
pub(crate) fn run_accelerated(hcas: &str, test: impl FnOnce(&Node) + Send) {
    run(|node| of_kind(node, hcas, || test(node)));
}

/// Runs `test` on HCAs without their own data path, whichever kind this run has: only they support connected mode.
pub(crate) fn plain(node: &Node, test: impl FnOnce()) {
    of_kind(node, "", test);
}

/// Unloads the driver of the HCAs and loads it with these HCAs accelerated.
pub(crate) fn reload_driver(node: &Node, hcas: &str) {
    load_kind(node, MODULE, hcas);
    bring_up(node);
}

fn of_kind(node: &Node, hcas: &str, test: impl FnOnce()) {
    if hcas == accelerated() {
        return test();
    }
    reload_driver(node, hcas);
    let outcome = catch_unwind(AssertUnwindSafe(test));
    reload(node, MODULE);
    outcome.unwrap_or_else(|failure| resume_unwind(failure));
}

fn set_netns_mode(mode: NetnsMode) {
    let mut socket = Socket::<Rdma>::open().unwrap();
    soon(&format!("every pod is gone, for the {mode} mode"), || {
        Socket::<Rdma>::open().unwrap().set_netns_mode(mode).is_ok()
    });
    assert_eq!(socket.netns_mode().unwrap(), mode);
}

fn reload(node: &Node, parameters: &str) {
    load(node, parameters);
    bring_up(node);
}

/// The accelerated HCAs of this run. They have their own data path for `IPoIB`, as mlx5 has: `tests/fabric/run
/// --accelerated`.
fn accelerated() -> String {
    let list = std::env::var_os("FABRIC_ACCELERATED").unwrap_or_default();
    list.to_string_lossy().into_owned()
}

/// Loads the module again, with the same kinds of HCAs as before.
fn load(node: &Node, parameters: &str) {
    load_kind(node, parameters, &accelerated());
}

fn load_kind(node: &Node, parameters: &str, accelerated: &str) {
    for words in [
        "-r softib".to_owned(),
        // The last value of a parameter counts, so a test's own list of accelerated HCAs takes effect.
        format!("softib accelerated={accelerated} {parameters}"),
    ] {
        let output = node.exec("modprobe", &words);
        assert!(output.status.success(), "modprobe {words}: {output:?}");
    }
}

fn bring_up(node: &Node) {
    bring_up_ports(node, &PORTS.map(str::to_owned));
}

fn bring_up_ports(node: &Node, ports: &[String]) {
    for port in ports {
        node.ip(&format!("link set {port} up"));
    }
    for port in ports {
        soon(&format!("{port} has carrier"), || node.link(port).carrier);
    }
}

/// Restores the fabric after a failed test, so that the next test does not fail for the same reason.
fn restore(node: &Node) {
    sa_delay(0);
    for number in 0..PORTS.len() {
        cable(number, true);
    }
    // Meanwhile the kernel moves the children of the ended pods back to the node.
    sleep(Duration::from_secs(1));
    for name in node.link_names() {
        if name != "lo" && !PORTS.contains(&name.as_str()) {
            node.exec("ip", &format!("link del {name}"));
        }
    }
}

/// Pulls the cable of an HCA, or plugs it in.
pub(crate) fn cable(hca: usize, plugged: bool) {
    let (link, expected) = if plugged { ("1", "ACTIVE") } else { ("0", "DOWN") };
    set_link(hca, link, expected);
}

/// Plugs the cable of an HCA into a fabric without a subnet manager. [`cable`] brings the subnet manager back.
pub(crate) fn without_subnet_manager(hca: usize) {
    set_link(hca, "init", "INIT");
}

fn set_link(hca: usize, link: &str, expected: &str) {
    fs::write(format!("/sys/devices/platform/softib.{hca}/link"), link).unwrap();
    let state = format!("/sys/class/infiniband/softib{hca}/ports/1/state");
    soon(&format!("softib{hca} is {expected}"), || {
        fs::read_to_string(&state).unwrap().contains(expected)
    });
}

/// From now on, the subnet administrator responds to a query after this many milliseconds. That also holds for the
/// queries that wait for a response.
pub(crate) fn sa_delay(milliseconds: u32) {
    fs::write("/sys/module/softib/parameters/sa_delay", milliseconds.to_string()).unwrap();
}

/// The multicast groups that ports have joined, each with its members.
pub(crate) fn groups() -> Vec<String> {
    let text = fs::read_to_string("/sys/kernel/debug/softib/groups").unwrap();
    let mut groups: Vec<_> = text.lines().map(str::to_owned).collect();
    groups.sort();
    groups
}

/// The number of queue pairs of all devices. A link of `IPoIB` has one, and one for each connection in connected mode.
pub(crate) fn queue_pairs() -> usize {
    let mut socket = Socket::<Rdma>::open().unwrap();
    let devices = socket.devices().unwrap();
    let counts = devices
        .iter()
        .map(|device| socket.queue_pairs(device.index).unwrap().len());
    counts.sum()
}

/// Waits until `holds` returns true. Panics after [`TIMEOUT`].
#[track_caller]
pub(crate) fn soon(what: &str, holds: impl Fn() -> bool) {
    within(TIMEOUT, what, holds);
}

/// A configuration with the master `ib0`, addresses of 10.7.0.0/24 from `rdma-ipam`, and these additional keys.
pub(crate) fn network(node: &Node, keys: &Value) -> Conf {
    let conf = node.conf(json!({"master": "ib0", "ipam": node.rdma_ipam("10.7.0.0/24")}));
    let keys = keys.as_object().unwrap().clone();
    keys.into_iter()
        .fold(conf, |conf, (key, value)| conf.with(&key, value))
}

/// The first address of a family in a result, without its prefix length.
pub(crate) fn address(result: &Value, ipv6: bool) -> String {
    let ips = result["ips"].as_array().unwrap();
    let found = ips
        .iter()
        .filter_map(|ip| ip["address"].as_str())
        .find(|address| address.contains(':') == ipv6);
    let found = found.unwrap_or_else(|| panic!("no address of that family in {result}"));
    found.split('/').next().unwrap().to_owned()
}

/// Whether `pod` gets a reply to one echo request within a second.
pub(crate) fn pings(pod: &Pod<'_>, target: &str) -> bool {
    pod.exec("ping", &format!("-q -c 1 -W 1 {target}"))
        .status
        .success()
}

/// Asserts that `pod` reaches `target`.
#[track_caller]
pub(crate) fn reaches(pod: &Pod<'_>, target: &str) {
    soon(&format!("{} reaches {target}", pod.id), || pings(pod, target));
}

/// Runs a program, which must succeed, and returns its output.
#[track_caller]
pub(crate) fn printed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}; is it in the VM?"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{command:?}: {}: {out}{err}",
        output.status
    );
    out.into_owned()
}
