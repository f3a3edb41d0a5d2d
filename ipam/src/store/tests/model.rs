// SPDX-License-Identifier: Apache-2.0
//! Random orders of calls, compared with a simple model of them.

use super::single;
use crate::testing::Fixture;
use common::cni::Code;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const COOLDOWN: u64 = 30;

/// One call, or an event on the node. Pods and hosts are small numbers.
#[derive(Clone, Debug)]
enum Event {
    Add(u8),
    Request(u8, u8),
    Del(u8),
    Gc(Vec<u8>),
    Pass(u64),
    Boot,
}

/// 10.0.0.1 to 10.0.0.6, allocated in turn.
#[derive(Debug, Default)]
struct Model {
    leased: BTreeMap<u8, u8>,
    released: BTreeMap<u8, u64>,
    last: u8,
    now: u64,
}

impl Model {
    fn rests(&self, host: u8) -> bool {
        self.released
            .get(&host)
            .is_some_and(|at| self.now - at < COOLDOWN)
    }

    fn add(&mut self, pod: u8) -> Result<u8, Code> {
        if let Some(host) = self.leased.get(&pod) {
            return Ok(*host);
        }
        let taken = |host: &u8| self.leased.values().any(|other| other == host);
        let turn = (self.last + 1..=6)
            .chain(1..=self.last)
            .filter(|host| !taken(host))
            .collect::<Vec<_>>();
        let Some(host) = turn.iter().copied().find(|host| !self.rests(*host)) else {
            return Err(if turn.is_empty() {
                Code::EXHAUSTED
            } else {
                Code::TRY_AGAIN
            });
        };
        self.last = host;
        self.leased.insert(pod, host);
        Ok(host)
    }

    fn request(&mut self, pod: u8, host: u8) -> Result<u8, Code> {
        match self.leased.get(&pod) {
            Some(own) if *own == host => Ok(host),
            Some(_) => Err(Code::INVALID_CONFIG),
            None if self.leased.values().any(|other| *other == host) => Err(Code::ADDRESS_IN_USE),
            None => {
                self.leased.insert(pod, host);
                Ok(host)
            }
        }
    }

    fn del(&mut self, pod: u8) {
        if let Some(host) = self.leased.remove(&pod) {
            self.released.insert(host, self.now);
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    let pod = 0_u8..8;
    prop_oneof![
        6 => pod.clone().prop_map(Event::Add),
        2 => (pod.clone(), 1_u8..=6).prop_map(|(pod, host)| Event::Request(pod, host)),
        5 => pod.clone().prop_map(Event::Del),
        1 => prop::collection::vec(pod, 0..8).prop_map(Event::Gc),
        3 => (1_u64..20).prop_map(Event::Pass),
        1 => Just(Event::Boot),
    ]
}

/// The result of a call in the model.
fn happen(fixture: &Fixture, model: &mut Model, event: &Event) -> (Result<u8, Code>, Result<u8, Code>) {
    let name = |pod: &u8| format!("pod-{pod}");
    let host = |ip: &str| ip.rsplit('.').next().unwrap().parse::<u8>().unwrap();
    let answer = |result: Result<common::cni::CniResult, common::cni::Error>| {
        result
            .map(|r| host(&r.ips[0].address.ip().to_string()))
            .map_err(|e| e.code)
    };
    match event {
        Event::Add(pod) => return (answer(fixture.try_add(&name(pod))), model.add(*pod)),
        Event::Request(pod, ip) => {
            return (
                answer(fixture.request(&name(pod), &[&format!("10.0.0.{ip}")])),
                model.request(*pod, *ip),
            );
        }
        Event::Del(pod) => {
            fixture.del(&name(pod)).unwrap();
            model.del(*pod);
        }
        Event::Gc(valid) => {
            let names: Vec<String> = valid.iter().map(name).collect();
            fixture
                .gc(&names.iter().map(String::as_str).collect::<Vec<_>>())
                .unwrap();
            let gone: Vec<u8> = model
                .leased
                .keys()
                .filter(|pod| !valid.contains(pod))
                .copied()
                .collect();
            for pod in gone {
                model.del(pod);
            }
        }
        Event::Pass(seconds) => {
            fixture.pass(Duration::from_secs(*seconds));
            model.now += seconds;
        }
        Event::Boot => {
            fixture.plugin.clock.boot.borrow_mut().push('1');
            model.leased.clear();
            model.released.clear();
        }
    }
    (Ok(0), Ok(0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_order_of_calls_matches_the_model(events in prop::collection::vec(event(), 1..60)) {
        let fixture = single("10.0.0.0/29");
        let mut model = Model::default();
        for event in &events {
            // A lease and the GC that follows it must not have the same time.
            fixture.pass(Duration::from_millis(1));
            let (actual, expected) = happen(&fixture, &mut model, event);
            prop_assert_eq!(actual, expected, "{:?} in {:?}", event, model);
        }
        fixture.assert_sound("after all");
    }
}
