// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::{Fault, Fixture, Ipam, State, attachment};
use common::cni::dispatch::Plugin as _;
use common::cni::{CniResult, Code, Version};
use ipnetwork::IpNetwork;
use serde_json::{Value, json};

const TABLE: u32 = 0x1234_5678;

fn net(text: &str) -> IpNetwork {
    text.parse().unwrap()
}

/// The policy of an IPAM plugin's result.
fn of(answer: Value) -> Policy {
    let mut answer = answer;
    answer["cniVersion"] = json!("1.1.0");
    let result = CniResult::from_json(&answer).unwrap();
    policy(7, TABLE, &result.ips, &result.routes)
}

fn routes(policy: &Policy) -> Vec<String> {
    let text = |route: &RouteEntry| {
        assert_eq!((route.index, route.table), (7, Some(TABLE)));
        let via = route.gateway.map(|gw| format!(" via {gw}")).unwrap_or_default();
        format!("{}{via}{}", route.dst, if route.onlink { " onlink" } else { "" })
    };
    policy.routes.iter().map(text).collect()
}

#[test]
fn each_address_has_a_rule_and_its_subnet_a_route() {
    let policy =
        of(json!({"ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}, {"address": "fd00:1::2/64"}]}));
    let rule = |from| Rule {
        from: net(from),
        table: TABLE,
        priority: 32000,
    };
    assert_eq!(policy.rules, [rule("10.0.0.2/32"), rule("fd00:1::2/128")]);
    assert_eq!(
        routes(&policy),
        ["10.0.0.0/24", "fd00:1::/64"],
        "a gateway alone adds no default route"
    );
}

#[test]
fn addresses_of_one_subnet_share_its_route() {
    let shared = of(json!({"ips": [{"address": "10.0.0.2/24"}, {"address": "10.0.0.3/24"}]}));
    assert_eq!(
        (shared.rules.len(), routes(&shared)),
        (2, vec!["10.0.0.0/24".to_owned()])
    );
    let alone = of(json!({"ips": [{"address": "10.0.0.2/32"}, {"address": "fd00::2/128"}]}));
    assert_eq!((alone.rules.len(), routes(&alone).len()), (2, 0));
}

#[test]
fn the_requested_routes_are_in_the_table_too() {
    let policy = of(json!({
        "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}, {"address": "10.9.0.2/32"}],
        "routes": [
            {"dst": "0.0.0.0/0"}, {"dst": "10.7.0.0/16", "gw": "10.0.0.9"}, {"dst": "10.8.0.0/16", "gw": "172.16.0.1"},
            {"dst": "10.6.0.0/16", "table": 100},
        ],
    }));
    assert_eq!(
        routes(&policy),
        [
            "10.0.0.0/24",
            "0.0.0.0/0 via 10.0.0.1",
            "10.7.0.0/16 via 10.0.0.9",
            "10.8.0.0/16 via 172.16.0.1 onlink"
        ],
        "and one that names its table only there"
    );
}

#[test]
fn each_attachment_has_its_own_stable_table() {
    let mark = |network: &str, container: &str| Mark::new(network, &attachment(container));
    let one = table(&mark("rail0", "c1"));
    assert_eq!(one, table(&mark("rail0", "c1")));
    assert_ne!(one, table(&mark("rail1", "c1")));
    assert_ne!(one, table(&mark("rail0", "c2")));
    for group in [0, 1, 255, 0x0fff_ffff, 0x1000_0000, u32::MAX] {
        let mut mark = mark("rail0", "c1");
        mark.group = group;
        assert!((0x1000_0000..0x2000_0000).contains(&table(&mark)), "{group}");
    }
}

fn own_table() -> u32 {
    table(&Mark::new("fabric", &attachment("c1")))
}

#[test]
fn an_attached_pod_has_the_rules_and_the_table() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let state = fixture.kernel.state();
    let index = state.pod[0].index;
    let ips: Vec<IpConfig> = ["10.0.0.2/24", "fd00:1::2/64"].map(ip).into();
    let expected = policy(index, own_table(), &ips, &[]);
    assert_eq!(state.rules, expected.rules);
    let in_table = |routes: &[RouteEntry]| -> Vec<RouteEntry> {
        let own = routes.iter().filter(|route| route.table == Some(own_table()));
        own.cloned().collect()
    };
    let routes = in_table(&state.routes);
    assert_eq!(routes[..2], expected.routes);
    assert_eq!(
        routes[2].dst,
        net("0.0.0.0/0"),
        "which this IPAM plugin asked for"
    );
    let log = fixture.kernel.get().log.clone();
    let step = |text: &str| log.iter().position(|request| request.starts_with(text)).unwrap();
    let settings = Ipv4Settings {
        arp_notify: 1,
        ..SETTINGS
    };
    assert_eq!(state.ipv4, [(index, settings)]);
    assert!(step("set IPv4") < step("bring"), "{log:?}");
}

fn ip(address: &str) -> IpConfig {
    IpConfig {
        address: net(address),
        gateway: None,
        interface: None,
        probe: false,
    }
}

#[test]
fn policy_routing_that_is_off_adds_no_rule_no_route_and_no_setting() {
    let fixture = Fixture::new();
    fixture.add_with("c1", &json!({"policyRouting": "off"})).unwrap();
    let state = fixture.kernel.state();
    assert_eq!(state.rules, []);
    assert!(state.routes.iter().all(|route| route.table != Some(own_table())));
    let settings = Ipv4Settings {
        arp_notify: 1,
        ..Ipv4Settings::default()
    };
    assert_eq!(state.ipv4, [(state.pod[0].index, settings)]);
    fixture.del("c1").unwrap();
}

#[test]
fn a_link_without_addresses_needs_no_policy() {
    let fixture = Fixture::new();
    fixture.add_with("c1", &json!({"ipam": {}})).unwrap();
    assert_eq!(fixture.kernel.state().rules, []);
}

#[test]
fn a_link_without_ipv4_gets_no_ipv4_settings() {
    let answer = json!({"cniVersion": "1.1.0", "ips": [{"address": "fd00:1::2/64"}]});
    let fixture = Fixture::with(Ipam::giving(&answer));
    fixture.add("c1").unwrap();
    assert_eq!(fixture.kernel.state().rules.len(), 1);
    assert_eq!(fixture.kernel.state().ipv4, []);
}

#[test]
fn the_error_for_a_kernel_without_policy_routing_has_a_remedy() {
    let fixture = Fixture::new();
    fixture.kernel.fail(Fault::Every("rule from fd00"));
    let error = fixture.add("c1").unwrap_err();
    let table = own_table();
    let text = format!(
        "cannot add the rule that routes packets from fd00:1::2 by table {table} (policyRouting \"off\" adds no rule)"
    );
    assert_eq!((error.code, error.msg), (Code::KERNEL, text));
    assert_eq!(
        fixture.kernel.state().rules,
        [],
        "the address of the other family is released"
    );
}

#[test]
fn del_removes_only_the_rules_of_its_attachment() {
    let fixture = Fixture::new();
    let before: State = fixture.kernel.state();
    let stranger = Rule {
        from: net("10.0.0.2/32"),
        table: table(&Mark::new("other", &attachment("c1"))),
        priority: PRIORITY,
    };
    fixture.add("c1").unwrap();
    fixture.kernel.set().state.rules.push(stranger.clone());
    fixture.del("c2").unwrap();
    assert_eq!(
        fixture.kernel.state().rules.len(),
        3,
        "those of another container"
    );
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state().rules, [stranger]);
    fixture.kernel.set().state.rules.clear();
    assert_eq!(fixture.kernel.state(), before);
}

#[test]
fn rules_are_removed_even_when_the_link_is_gone() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    fixture.kernel.set().state.pod.clear();
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state().rules, []);
}

fn checked(change: impl FnOnce(&mut State), keys: &Value) -> Result<(), String> {
    let fixture = Fixture::new();
    let prev = fixture.add_with("c1", keys).unwrap().to_json(Version::V1_1_0);
    change(&mut fixture.kernel.set().state);
    let mut keys = keys.clone();
    keys["prevResult"] = prev;
    let checked = fixture
        .plugin()
        .check(&fixture.call(&keys), &attachment("c1"), &fixture.pod.path());
    checked.map_err(|error| error.msg)
}

#[test]
fn check_reports_missing_rules_and_routes() {
    assert_eq!(checked(|_| {}, &json!({})), Ok(()));
    let table = own_table();
    let without_rule = checked(
        |state| {
            state.rules.remove(0);
        },
        &json!({}),
    );
    let text = format!("net1 is not as ADD left it: the rule from 10.0.0.2 to table {table} is gone");
    assert_eq!(without_rule, Err(text));
    let without_route = checked(
        |state| {
            let of_table = |route: &RouteEntry| route.table == Some(table) && route.dst.is_ipv6();
            state.routes.retain(|route| !of_table(route));
        },
        &json!({}),
    );
    let text = format!("net1 is not as ADD left it: the route to fd00:1::/64 in table {table} is gone");
    assert_eq!(without_route, Err(text));
    assert_eq!(
        checked(|state| state.rules.clear(), &json!({"policyRouting": "off"})),
        Ok(())
    );
}
