// SPDX-License-Identifier: Apache-2.0
//! The steps, in the order of a pod's life.
//!
//! Invariant: a step that fails stops only the steps that need its result, and these are in the log as not run.

use super::bench::{Bench, Pod};
use super::log::Log;
use super::program::installed;
use cni_ipoib::select::RdmaPort;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The number of ADDs that are killed at moments spread over one ADD.
const KILLS: u32 = 6;

/// The largest number of ADDs that are killed.
const MOST_KILLS: u32 = 40;

/// A pod with the result of its ADD.
#[derive(Debug)]
pub struct Attached {
    /// The pod.
    pub pod: Pod,
    result: Value,
    took: Duration,
}

impl Attached {
    /// Its address, without the prefix length.
    pub fn address(&self) -> &str {
        let address = self.result["ips"][0]["address"].as_str().unwrap_or_default();
        address.split('/').next().unwrap_or_default()
    }
}

/// Runs every step. `peer` is the address that a listener on another node has printed.
pub fn all(bench: &Bench, log: &mut Log, peer: Option<&str>) {
    let first = attach(bench, log, "a");
    let second = attach(bench, log, "b");
    if let (Some(first), Some(second)) = (&first, &second) {
        exchange_data(bench, log, first, second);
        for of in [first, second] {
            log.step(&format!("CHECK finds {} as ADD left it", of.pod.id), || {
                bench.check(&of.pod, &of.result)
            });
        }
        kill_adds(bench, log, first, first.took.min(second.took));
        remove_namespaces(bench, log, first, second);
    } else {
        log.not_run(
            "two pods exchange data, are checked and removed",
            "a pod was not attached",
        );
    }
    match (&first, peer) {
        (Some(first), Some(peer)) => reach_peer(bench, log, first, peer),
        (None, Some(_)) => log.not_run("the peer answers", "no pod was attached"),
        (_, None) => {}
    }
    if let Some(first) = first {
        log.step("DEL detaches a pod, and succeeds again", || {
            bench.del(&first.pod)?;
            bench.require_no_link(&first.pod)?;
            bench.del(&first.pod)?;
            require_leases(bench, 0)
        });
    }
}

/// Attaches a pod.
pub fn attach(bench: &Bench, log: &mut Log, name: &'static str) -> Option<Attached> {
    let attached = log.step(&format!("ADD attaches a pod ({name})"), || {
        let pod = bench.pod(name)?;
        let start = Instant::now();
        let result = bench.add(&pod)?;
        let took = start.elapsed();
        Ok(Attached { pod, result, took })
    })?;
    log.seen(format!(
        "{}, ADD took {} ms",
        attached.address(),
        attached.took.as_millis()
    ));
    Some(attached)
}

fn exchange_data(bench: &Bench, log: &mut Log, first: &Attached, second: &Attached) {
    for (from, to) in [(first, second), (second, first)] {
        let name = format!("{} reaches {}", from.pod.id, to.pod.id);
        ping(bench, log, &name, from, to.address());
    }
    let name = "ib_write_bw moves data between the pods";
    if let Some(rdma) = can_measure(bench, log, name) {
        let serve = || serve_bandwidth(bench, rdma, &second.pod);
        measure(bench, log, name, (rdma, &first.pod, second.address()), serve);
    }
}

/// Runs the same tests with the pod of a listener on another node, which has its own server.
fn reach_peer(bench: &Bench, log: &mut Log, first: &Attached, peer: &str) {
    ping(bench, log, "the peer answers", first, peer);
    let name = "ib_write_bw moves data to the peer";
    if let Some(rdma) = can_measure(bench, log, name) {
        measure(bench, log, name, (rdma, &first.pod, peer), || Ok(None));
    }
}

fn ping(bench: &Bench, log: &mut Log, name: &str, from: &Attached, to: &str) {
    let words = ["-q", "-c", "5", "-i", "0.3", "-W", "2", to];
    let printed = log.step(name, || {
        let printed = bench.inside(&from.pod, "ping", &words)?;
        require_replies(&printed).map(|()| printed)
    });
    if let Some(printed) = printed {
        // The numbers of packets, and their times.
        let lines: Vec<&str> = printed.lines().collect();
        log.seen(lines[lines.len().saturating_sub(2)..].join("; "));
    }
}

/// Fails if two replies or more are missing: `ping` itself succeeds with one reply. The first packet may be lost while the path to
/// the other pod is resolved.
fn require_replies(printed: &str) -> Result<(), String> {
    let summary = printed.lines().find(|line| line.contains("packets transmitted"));
    let number = |of: &str| {
        let part = summary?.split(", ").find(|part| part.contains(of))?;
        part.split_whitespace().next()?.parse::<u32>().ok()
    };
    match (number("transmitted"), number("received")) {
        (Some(sent), Some(received)) if received + 1 >= sent => Ok(()),
        (Some(_), Some(_)) => Err(format!(
            "packets are lost: {}",
            summary.unwrap_or_default().trim()
        )),
        _ => Err(format!("the output of ping has no number of replies: {printed}")),
    }
}

/// The port for measurements. If there is none, the reason is logged.
fn can_measure<'b>(bench: &'b Bench, log: &mut Log, name: &str) -> Option<&'b RdmaPort> {
    let Some(rdma) = &bench.rdma else {
        log.not_run(
            name,
            "the port is Ethernet, or the RDMA subsystem is in exclusive mode",
        );
        return None;
    };
    if !installed("ib_write_bw") {
        log.not_run(name, "ib_write_bw is not installed (package perftest)");
        return None;
    }
    Some(rdma)
}

/// Starts the server of a measurement in `pod`. It serves one client and ends.
///
/// # Errors
/// The program cannot be started.
pub fn serve_bandwidth(bench: &Bench, rdma: &RdmaPort, pod: &Pod) -> Result<Option<Child>, String> {
    let mut command = bench.command_inside(pod, "ib_write_bw", &words(rdma, &[]));
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().map(Some).map_err(|e| format!("ib_write_bw: {e}"))
}

/// The arguments of `ib_write_bw`, and `more`. Without `-i` it uses port 1 of the device.
fn words(rdma: &RdmaPort, more: &[&str]) -> Vec<String> {
    let number = rdma.number.to_string();
    let own = ["-d", &rdma.device, "-i", &number, "-F", "-n", "200"];
    own.iter().chain(more).map(|&word| word.to_owned()).collect()
}

fn measure(
    bench: &Bench,
    log: &mut Log,
    name: &str,
    (rdma, client, server): (&RdmaPort, &Pod, &str),
    serve: impl FnOnce() -> Result<Option<Child>, String>,
) {
    let printed = log.step(name, || {
        let mut listens = serve()?;
        let mut last = Err("the server did not respond".to_owned());
        // The server needs a moment before it listens.
        for _ in 0..10 {
            sleep(Duration::from_millis(700));
            last = bench.inside(client, "ib_write_bw", &words(rdma, &[server]));
            if last.is_ok() {
                break;
            }
        }
        if let Some(server) = &mut listens {
            if last.is_err() {
                // The server may have ended by itself.
                let _ = server.kill();
            }
            let _ = server.wait();
        }
        last
    });
    if let Some(average) = printed.as_deref().and_then(average_bandwidth) {
        log.seen(format!("{average} MB/s"));
    }
}

/// The fourth column below the heading `#bytes`: the average in MB/s.
fn average_bandwidth(printed: &str) -> Option<&str> {
    let lines = printed.lines().skip_while(|line| !line.contains("#bytes"));
    lines.skip(1).find_map(|line| line.split_whitespace().nth(3))
}

/// Kills ADDs at moments spread over the duration of one ADD. DEL must then remove everything. On a busy node each of these ADDs
/// may be killed before its first effect, so more are killed later and later, until one has left something.
fn kill_adds(bench: &Bench, log: &mut Log, other: &Attached, add_takes: Duration) {
    let name = format!("after each of {KILLS} kills in the middle of ADD, DEL leaves nothing");
    let killed = log.step(&name, || {
        let pod = bench.pod("c")?;
        let mut kills = Kills::default();
        for number in 0..KILLS {
            kills.strike(bench, &pod, add_takes * number / KILLS)?;
        }
        let mut after = add_takes;
        while kills.effective == 0 && kills.adds < MOST_KILLS {
            let was_killed = kills.strike(bench, &pod, after)?;
            after = if was_killed { after * 3 / 2 } else { after * 2 / 3 };
        }
        bench.require_no_child()?;
        bench.remove_namespace(&pod)?;
        kills.require_effect()?;
        Ok(kills)
    });
    if let Some(Kills {
        adds,
        killed,
        effective,
        links,
    }) = killed
    {
        log.seen(format!(
            "{killed} of {adds} ADDs were killed, {effective} of them with a link or an address ({links} with a link); the others had ended"
        ));
    }
    log.step("the kills did not change another pod", || {
        bench.check(&other.pod, &other.result)
    });
}

/// The ADDs of [`kill_adds`].
#[derive(Default)]
struct Kills {
    adds: u32,
    /// Those that the kill ended.
    killed: u32,
    /// Those of them that left a link or an address.
    effective: u32,
    /// Those of the latter that left a link, in the pod or, of a child that was to be moved, on the host.
    links: u32,
}

impl Kills {
    /// Kills an ADD after this time, and requires that DEL leaves nothing. Returns whether the kill ended the ADD.
    fn strike(&mut self, bench: &Bench, pod: &Pod, after: Duration) -> Result<bool, String> {
        let was_killed = kill_add(bench, pod, after)?;
        let link = bench.require_no_link(pod).is_err() || bench.require_no_child().is_err();
        let left = link || require_leases(bench, 2).is_err();
        self.adds += 1;
        self.killed += u32::from(was_killed);
        self.effective += u32::from(was_killed && left);
        self.links += u32::from(was_killed && link);
        bench.del(pod)?;
        bench.require_no_link(pod)?;
        require_leases(bench, 2)?;
        Ok(was_killed)
    }

    fn require_effect(&self) -> Result<(), String> {
        if self.effective > 0 {
            return Ok(());
        }
        let (killed, adds) = (self.killed, self.adds);
        Err(format!(
            "no kill came while an ADD had a link or an address: {killed} of {adds} ADDs were killed before, the others had ended"
        ))
    }
}

/// Kills an ADD after this time; returns whether the kill ended it.
fn kill_add(bench: &Bench, pod: &Pod, after: Duration) -> Result<bool, String> {
    let mut child = bench.begin_add(pod)?;
    sleep(after);
    child.kill().map_err(|e| format!("kill: {e}"))?;
    let status = child.wait().map_err(|e| format!("wait: {e}"))?;
    Ok(status.signal().is_some())
}

/// Removes namespaces without DEL. DEL cleans up after one, GC after the other.
fn remove_namespaces(bench: &Bench, log: &mut Log, other: &Attached, ended: &Attached) {
    log.step("after a namespace is gone, DEL leaves nothing", || {
        bench.remove_namespace(&ended.pod)?;
        bench.del(&ended.pod)?;
        require_leases(bench, 1)?;
        bench.require_no_child()
    });
    let name = "after a namespace is gone, GC leaves nothing, and keeps the other pod";
    log.step(name, || {
        let pod = bench.pod("d")?;
        bench.add(&pod)?;
        bench.remove_namespace(&pod)?;
        bench.gc(&[&other.pod])?;
        require_leases(bench, 1)?;
        bench.require_no_child()?;
        bench.check(&other.pod, &other.result)
    });
}

fn require_leases(bench: &Bench, want: usize) -> Result<(), String> {
    match bench.leases() {
        leases if leases == want => Ok(()),
        leases => Err(format!("{leases} addresses are leased instead of {want}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without `-i` the program uses port 1 of the device, which may carry other traffic.
    #[test]
    fn ib_write_bw_uses_the_port_under_test() {
        let rdma = RdmaPort {
            device: "mlx4_0".to_owned(),
            number: 2,
            rate_mbps: None,
            subnet_prefix: None,
            pkeys: Vec::new(),
        };
        let words = words(&rdma, &["10.0.0.1"]).join(" ");
        assert!(words.starts_with("-d mlx4_0 -i 2 "), "{words}");
        assert!(words.ends_with(" 10.0.0.1"), "{words}");
    }

    #[test]
    fn a_ping_that_loses_more_than_one_packet_fails() {
        let iputils = |received: u32, loss: u32| {
            format!(
                "--- 198.18.0.2 ping statistics ---\n5 packets transmitted, {received} received, {loss}% packet loss, time 1212ms\nrtt min/avg/max/mdev = 0.1/0.2/0.3/0.1 ms\n"
            )
        };
        require_replies(&iputils(5, 0)).unwrap();
        require_replies(&iputils(4, 20)).unwrap();
        require_replies("5 packets transmitted, 5 packets received, 0% packet loss\n").unwrap();
        let lost = require_replies(&iputils(1, 80)).unwrap_err();
        assert!(lost.contains("1 received, 80% packet loss"), "{lost}");
        require_replies("5 packets transmitted, 3 received, +1 duplicates, 40% packet loss").unwrap_err();
        require_replies("").unwrap_err();
    }

    #[test]
    fn the_average_bandwidth_is_parsed_from_the_output_of_ib_write_bw() {
        let printed = " RDMA_Write BW Test\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      200              105.14             98.02              0.001568\n---\n";
        assert_eq!(average_bandwidth(printed), Some("98.02"));
        assert_eq!(average_bandwidth("no table"), None);
    }
}
