// SPDX-License-Identifier: Apache-2.0
//! The counts of watches and connections.

use super::{block_watches, established, own_sockets};
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};

#[test]
fn watches_of_blocks_are_counted_and_other_requests_are_not() {
    let metrics = "\
apiserver_longrunning_requests{component=\"apiserver\",group=\"rdmanet.io\",resource=\"ipblocks\",scope=\"cluster\",verb=\"WATCH\"} 7
apiserver_longrunning_requests{component=\"apiserver\",group=\"rdmanet.io\",resource=\"ipblocks\",scope=\"resource\",verb=\"WATCH\"} 2
apiserver_longrunning_requests{component=\"apiserver\",group=\"rdmanet.io\",resource=\"ippools\",scope=\"cluster\",verb=\"WATCH\"} 40
apiserver_request_total{resource=\"ipblocks\",verb=\"WATCH\"} 90
";
    assert_eq!(block_watches(metrics), 9);
}

#[test]
fn the_connections_of_this_process_to_a_port_are_counted() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let [port, elsewhere] = [&server, &other].map(|one| one.local_addr().unwrap().port());
    let connect = |port| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _ours = [connect(port), connect(port), connect(elsewhere)];
    let tcp = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    assert_eq!(established(&tcp, port, &own_sockets()), 2);
    let of_another_process = BTreeSet::new();
    assert_eq!(established(&tcp, port, &of_another_process), 0);
}
