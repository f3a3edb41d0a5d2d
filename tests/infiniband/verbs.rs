// SPDX-License-Identifier: Apache-2.0
//! RDMA between pods: `ib_write_bw`, reliable connection, from one HCA to another.

use crate::fabric::{address, network, run, soon};
use std::thread;
use tests::{Pod, json};

/// Writes from the device of one pod to the device of another. The programs connect through `target`, an address of the
/// second pod.
#[track_caller]
pub(crate) fn write_bandwidth(client: (&Pod<'_>, &str), server: (&Pod<'_>, &str), target: &str) {
    thread::scope(|scope| {
        let words = format!("300 ib_write_bw -d {} -F -n 100", server.1);
        let serving = scope.spawn(move || server.0.exec("timeout", &words));
        soon("the server listens", || {
            let listening = server.0.exec("ss", "-Hltn sport = :18515");
            !listening.stdout.is_empty() || serving.is_finished()
        });
        let words = format!("240 ib_write_bw -d {} -F -n 100 {target}", client.1);
        let output = client.0.exec("timeout", &words);
        let other_end = serving.join().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("65536      100"),
            "the client: {output:?}; the server: {other_end:?}"
        );
        assert!(other_end.status.success(), "the server: {other_end:?}");
    });
}

#[test]
fn rdma_writes_go_from_pod_to_pod() {
    run(|node| {
        let (client, server) = (node.pod(), node.pod());
        let confs = ["ib0", "ib1"].map(|master| network(node, &json!({"master": master})));
        client.attach(&confs[0], "net1");
        let target = address(&server.attach(&confs[1], "net1"), false);
        write_bandwidth((&client, "softib0"), (&server, "softib1"), &target);
        client.detach(&confs[0], "net1");
        server.detach(&confs[1], "net1");
    });
}
