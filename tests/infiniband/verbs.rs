// SPDX-License-Identifier: Apache-2.0
//! RDMA between pods: in the shared mode of the subsystem a pod's programs use its parent's HCA.

use crate::fabric::{address, network, run, soon};
use std::thread;
use tests::json;

#[test]
fn rdma_writes_go_from_pod_to_pod() {
    run(|node| {
        let (client, server) = (node.pod(), node.pod());
        let confs = ["ib0", "ib1"].map(|master| network(node, &json!({"master": master})));
        client.attach(&confs[0], "net1");
        let target = address(&server.attach(&confs[1], "net1"), false);
        thread::scope(|scope| {
            let serving = scope.spawn(|| server.exec("timeout", "40 ib_write_bw -d softib1 -F -n 100"));
            soon("the server listens", || {
                let listening = server.exec("ss", "-Hltn sport = :18515");
                !listening.stdout.is_empty() || serving.is_finished()
            });
            let output = client.exec(
                "timeout",
                &format!("30 ib_write_bw -d softib0 -F -n 100 {target}"),
            );
            let other_end = serving.join().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.contains("65536      100"),
                "the client: {output:?}; the server: {other_end:?}"
            );
            assert!(other_end.status.success(), "the server: {other_end:?}");
        });
        client.detach(&confs[0], "net1");
        server.detach(&confs[1], "net1");
    });
}
