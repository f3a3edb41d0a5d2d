// SPDX-License-Identifier: Apache-2.0
use crate::device::fixture::{WAYS, add, fixture};
use common::cni::dispatch::Plugin as _;
use common::cni::{Code, Version};
use serde_json::{Value, json};

fn keys(prev: &Value) -> Value {
    json!({"mode": "device", "master": "ib0", "prevResult": prev})
}

#[test]
fn check_compares_with_the_journal() {
    for way in WAYS {
        let fixture = fixture(way);
        let prev = add(&fixture, "ib0").unwrap().to_json(Version::V1_1_0);
        let check = || {
            let call = fixture.call(&keys(&prev));
            fixture
                .plugin()
                .check(&call, &crate::model::attachment("c1"), &fixture.pod.path())
        };
        check().unwrap_or_else(|e| panic!("{way:?}: {e:?}"));
        fixture.kernel.set().state.pod[0].up = false;
        fixture.kernel.set().state.pod[0].device = Some("pci/0000:00:00.0".to_owned());
        let error = check().unwrap_err();
        assert_eq!(error.code, Code::CHECK_FAILED);
        for expected in ["it is not ib0 of the host", "it is down"] {
            assert!(
                error.msg.contains(expected),
                "{expected:?} is not in {:?}",
                error.msg
            );
        }
    }
}

#[test]
fn status_accepts_a_link_that_is_in_a_pod() {
    let fixture = fixture(WAYS[0]);
    let keys = json!({"mode": "device", "master": "ib0"});
    fixture.status(&keys).unwrap();
    add(&fixture, "ib0").unwrap();
    fixture.status(&keys).unwrap();
    fixture.del("c1").unwrap();
    fixture
        .node
        .write("class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    assert_eq!(fixture.status(&keys).unwrap_err().code, Code::LIMITED);
    let missing = json!({"mode": "device", "master": "ib9"});
    assert_eq!(fixture.status(&missing).unwrap_err().code, Code::NOT_AVAILABLE);
}
