// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::interval::Interval;
use crate::range::RangeSpec;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A store in memory that counts its reads.
#[derive(Default)]
struct Memory {
    taken: RefCell<BTreeSet<IpAddr>>,
    resting: BTreeMap<IpAddr, Duration>,
    cursors: RefCell<BTreeMap<String, IpAddr>>,
    questions: Cell<u32>,
}

impl Memory {
    fn with(taken: &[&str]) -> Self {
        Self {
            taken: RefCell::new(taken.iter().map(|ip| ip.parse().unwrap()).collect()),
            ..Self::default()
        }
    }

    fn take(&self, allocation: &Allocation) {
        assert!(
            self.taken.borrow_mut().insert(allocation.ip),
            "{} was allocated twice",
            allocation.ip
        );
        self.cursors
            .borrow_mut()
            .insert(allocation.range.to_string(), allocation.ip);
    }
}

impl Occupancy for Memory {
    fn state(&self, ip: IpAddr) -> Result<State, Error> {
        self.questions.set(self.questions.get() + 1);
        if self.taken.borrow().contains(&ip) {
            return Ok(State::Taken);
        }
        Ok(self
            .resting
            .get(&ip)
            .map_or(State::Free, |rest| State::Resting(*rest)))
    }

    fn must_probe(&self, _ip: IpAddr) -> bool {
        false
    }

    fn owner(&self, _ip: IpAddr) -> String {
        "eth0 of container other".to_owned()
    }

    fn occupied(&self, family: Family) -> Result<Occupied, Error> {
        let number = |ip: &IpAddr| Interval {
            first: bits(*ip),
            last: bits(*ip),
        };
        Ok(Occupied {
            taken: self
                .taken
                .borrow()
                .iter()
                .filter(|ip| Family::of(**ip) == family)
                .map(number)
                .collect(),
            resting: self
                .resting
                .keys()
                .filter(|ip| Family::of(**ip) == family)
                .map(number)
                .collect(),
            rests: self
                .resting
                .iter()
                .filter(|(ip, _)| Family::of(**ip) == family)
                .map(|(ip, rest)| (bits(*ip), *rest))
                .collect(),
        })
    }

    fn resting(&self, family: Family) -> Result<Vec<Resting>, Error> {
        let of_family = self.resting.keys().filter(|ip| Family::of(**ip) == family);
        let free = of_family.filter(|ip| !self.taken.borrow().contains(ip));
        Ok(free
            .map(|ip| Resting {
                ip: *ip,
                pod: Some(format!("ns/{ip}")),
                ended: Duration::from_secs(100),
                is_doubtful: false,
            })
            .collect())
    }

    fn cursor(&self, range: &Range) -> Option<IpAddr> {
        self.cursors.borrow().get(&range.to_string()).copied()
    }
}

fn range(subnet: &str, exclude: &[(&str, &str)]) -> Range {
    let ip = |text: &str| text.parse().unwrap();
    let spec = RangeSpec {
        place: "ipam.ranges[0][0]".to_owned(),
        subnet: subnet.parse().unwrap(),
        start: None,
        end: None,
        gateway: None,
        exclude: exclude.iter().map(|(a, b)| (ip(a), ip(b))).collect(),
    };
    Range::new(spec, &Arc::default()).unwrap()
}

fn given(sets: &[Vec<Range>], requests: &[&str], memory: &Memory) -> Result<Vec<String>, Error> {
    let allocations = allocate(sets, &Requests::of(requests), memory, None)?;
    Ok(allocations.iter().map(|a| a.ip.to_string()).collect())
}

fn refused(sets: &[Vec<Range>], requests: &[&str], memory: &Memory) -> (Code, String) {
    let error = given(sets, requests, memory).unwrap_err();
    (error.code, error.msg)
}

/// To wait for a resting address of the first set does not help.
#[test]
fn a_set_without_a_resting_address_is_named_before_one_with() {
    let sets = [
        vec![range("10.0.0.0/31", &Arc::default())],
        vec![range("10.1.0.0/31", &Arc::default())],
    ];
    let memory = Memory {
        resting: ["10.0.0.0", "10.0.0.1"]
            .map(|ip| (ip.parse().unwrap(), Duration::from_secs(5)))
            .into(),
        ..Memory::with(&["10.1.0.0", "10.1.0.1"])
    };
    for sets in [sets.clone(), [sets[1].clone(), sets[0].clone()]] {
        let (code, msg) = refused(&sets, &[], &memory);
        assert_eq!(code, Code::EXHAUSTED, "{msg}");
        assert!(msg.contains("10.1.0.0") && !msg.contains("10.0.0.0"), "{msg}");
    }
}

#[test]
fn an_attachment_gets_one_address_from_each_set() {
    let sets = [
        vec![range("10.0.0.0/24", &Arc::default())],
        vec![range("fd00::/64", &Arc::default())],
    ];
    assert_eq!(
        given(&sets, &[], &Memory::default()).unwrap(),
        ["10.0.0.1", "fd00::1"]
    );
}

#[test]
fn one_exhausted_set_fails_the_whole_allocation() {
    let sets = [
        vec![range("10.0.0.0/24", &Arc::default())],
        vec![range("fd00::1/128", &Arc::default())],
    ];
    assert_eq!(
        refused(&sets, &[], &Memory::with(&["fd00::1"])).0,
        Code::EXHAUSTED
    );
}

#[test]
fn addresses_are_allocated_in_turn_so_that_released_ones_rest() {
    let sets = [vec![range("10.0.0.0/29", &[("10.0.0.2", "10.0.0.3")])]];
    let memory = Memory::default();
    let mut order = Vec::new();
    for _ in 0..6 {
        let allocation = allocate(&sets, &Requests::default(), &memory, None)
            .unwrap()
            .remove(0);
        memory.take(&allocation);
        memory.taken.borrow_mut().clear();
        order.push(allocation.ip.to_string());
    }
    assert_eq!(
        order,
        [
            "10.0.0.1", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.1", "10.0.0.4"
        ]
    );
}

#[test]
fn ranges_of_a_set_are_tried_in_order() {
    let sets = [vec![
        range("10.0.0.4/31", &Arc::default()),
        range("10.0.1.4/31", &Arc::default()),
    ]];
    assert_eq!(given(&sets, &[], &Memory::default()).unwrap(), ["10.0.0.4"]);
    assert_eq!(
        given(&sets, &[], &Memory::with(&["10.0.0.4", "10.0.0.5"])).unwrap(),
        ["10.0.1.4"]
    );
    assert_eq!(
        given(&sets, &[], &Memory::with(&["10.0.0.5", "10.0.1.4"])).unwrap(),
        ["10.0.0.4"]
    );
}

#[test]
fn errors_report_the_usage_of_a_range_and_the_time_to_wait() {
    let sets = [vec![range("10.0.0.0/30", &Arc::default())]];
    let (code, msg) = refused(&sets, &[], &Memory::with(&["10.0.0.1", "10.0.0.2"]));
    assert_eq!(
        (code, msg.contains("10.0.0.1-10.0.0.2: 2 of 2 in use")),
        (Code::EXHAUSTED, true),
        "{msg}"
    );
    let mut memory = Memory::with(&["10.0.0.1"]);
    memory
        .resting
        .insert("10.0.0.2".parse().unwrap(), Duration::from_millis(16_001));
    let (code, msg) = refused(&sets, &[], &memory);
    assert_eq!(code, Code::TRY_AGAIN, "{msg}");
    assert!(
        msg.contains("1 of 2 in use, 1 released and resting; try again in 17 s"),
        "{msg}"
    );
}

#[test]
fn requested_addresses_are_allocated_or_refused_with_the_reason() {
    let sets = [
        vec![range("10.0.0.0/24", &[("10.0.0.20", "10.0.0.29")])],
        vec![range("fd00::/64", &Arc::default())],
    ];
    let memory = Memory::with(&["10.0.0.7"]);
    assert_eq!(
        given(&sets, &["10.0.0.9"], &memory).unwrap(),
        ["10.0.0.9", "fd00::1"]
    );
    assert_eq!(
        given(&sets, &["FD00:0::9", "10.0.0.9/24"], &memory).unwrap(),
        ["10.0.0.9", "fd00::9"]
    );
    let cases: [(&[&str], Code, &str); 8] = [
        (
            &["10.0.0.7"],
            Code::ADDRESS_IN_USE,
            "in use by eth0 of container other",
        ),
        (&["10.0.1.7"], Code::ADDRESS_OUTSIDE, "lies outside every range"),
        (
            &["10.0.0.25"],
            Code::ADDRESS_EXCLUDED,
            "is excluded in ipam.ranges[0][0]",
        ),
        (&["10.0.0.0"], Code::ADDRESS_EXCLUDED, "is the network address"),
        (
            &["10.0.0.255"],
            Code::ADDRESS_EXCLUDED,
            "is the broadcast address",
        ),
        (
            &["fd00::"],
            Code::ADDRESS_EXCLUDED,
            "is the subnet-router anycast address",
        ),
        (
            &["10.0.0.8", "10.0.0.9"],
            Code::INVALID_CONFIG,
            "come from one range set",
        ),
        (
            &["10.0.0.8/16"],
            Code::INVALID_CONFIG,
            "prefix length 16, but its subnet is 10.0.0.0/24",
        ),
    ];
    for (requests, code, expected) in cases {
        let (got, msg) = refused(&sets, requests, &memory);
        assert_eq!(got, code, "{msg}");
        assert!(msg.contains(expected), "{msg:?} lacks {expected:?}");
    }
}

#[test]
fn the_wait_for_a_resting_address_is_that_of_the_range_itself() {
    let mut store = Memory::with(&["10.0.0.1", "10.1.0.2"]);
    for (ip, seconds) in [("10.0.0.2", 17), ("10.1.0.1", 5), ("10.1.0.2", 1)] {
        store
            .resting
            .insert(ip.parse().unwrap(), Duration::from_secs(seconds));
    }
    for (subnet, wait) in [("10.0.0.0/30", "in 17 s"), ("10.1.0.0/30", "in 5 s")] {
        let (_, msg) = refused(&[vec![range(subnet, &[])]], &[], &store);
        assert!(msg.ends_with(&format!("try again {wait}")), "{msg}");
    }
}

#[test]
fn a_requested_address_is_allocated_while_it_rests() {
    let mut memory = Memory::default();
    memory
        .resting
        .insert("10.0.0.2".parse().unwrap(), Duration::from_secs(9));
    assert_eq!(
        given(
            &[vec![range("10.0.0.0/24", &Arc::default())]],
            &["10.0.0.2"],
            &memory
        )
        .unwrap(),
        ["10.0.0.2"]
    );
}

#[test]
fn a_full_range_costs_few_reads_of_the_store() {
    let sets = [vec![range("10.0.0.0/16", &Arc::default())]];
    for live in [10_u32, 1_000, 60_000] {
        let memory = Memory::default();
        memory
            .taken
            .borrow_mut()
            .extend((1..=live).map(|n| IpAddr::V4((0x0a00_0000 + n).into())));
        let expected = Ipv4(0x0a00_0001 + live).to_string();
        assert_eq!(given(&sets, &[], &memory).unwrap(), [expected]);
        assert!(
            u128::from(memory.questions.get()) <= PROBES,
            "{} questions for {live}",
            memory.questions.get()
        );
    }
}

struct Ipv4(u32);

impl std::fmt::Display for Ipv4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::net::Ipv4Addr::from(self.0).fmt(f)
    }
}

proptest! {
    /// Compares with the simplest allocator: a list of all usable addresses, searched from the cursor.
    #[test]
    fn the_allocator_agrees_with_an_exhaustive_list(
        excluded in prop::collection::vec((0_u8..=255, 0_u8..40), 0..6),
        taken in prop::collection::btree_set(0_u8..=255, 0..256),
        resting in prop::collection::btree_set(0_u8..=255, 0..60),
        cursor in prop::option::of(0_u8..=255),
    ) {
        let address = |n: u8| IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, n));
        let exclude: Vec<(IpAddr, IpAddr)> = excluded.iter().map(|(a, l)| (address(*a), address(a.saturating_add(*l)))).collect();
        let usable: Vec<u8> = (1..=254).filter(|n| !exclude.iter().any(|(a, b)| (*a..=*b).contains(&address(*n)))).collect();
        let spec = RangeSpec {
            place: "p".to_owned(), subnet: "10.0.0.0/24".parse().unwrap(), start: None, end: None, gateway: None, exclude,
        };
        let Ok(range) = Range::new(spec, &Arc::default()) else {
            prop_assert!(usable.is_empty());
            return Ok(());
        };
        let memory = Memory {
            taken: RefCell::new(taken.iter().map(|n| address(*n)).collect()),
            resting: resting.iter().map(|n| (address(*n), Duration::from_secs(5))).collect(),
            ..Memory::default()
        };
        if let Some(cursor) = cursor {
            memory.cursors.borrow_mut().insert(range.to_string(), address(cursor));
        }
        let after = usable.iter().filter(|n| cursor.is_some_and(|c| **n > c));
        let before = usable.iter().filter(|n| cursor.is_none_or(|c| **n <= c));
        let expected = after.chain(before).find(|n| !taken.contains(n) && !resting.contains(n));
        match (allocate(&[vec![range]], &Requests::default(), &memory, None), expected) {
            (Ok(got), Some(expected)) => prop_assert_eq!(got[0].ip, address(*expected)),
            (Err(error), None) => {
                let rests = usable.iter().any(|n| resting.contains(n) && !taken.contains(n));
                prop_assert_eq!(error.code, if rests { Code::TRY_AGAIN } else { Code::EXHAUSTED });
            }
            (got, expected) => prop_assert!(false, "{:?} instead of {:?}", got.map(|g| g[0].ip), expected),
        }
    }
}
