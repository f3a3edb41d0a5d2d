// SPDX-License-Identifier: Apache-2.0
use super::{bind, unbind};
use crate::intent::Function;
use common::rdma::Guid;
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn a_function_is_bound_and_unbound_only_when_necessary() {
    let root = tempfile::tempdir().unwrap();
    let (path, driver) = (root.path().join("0000:3b:00.2"), root.path().join("mlx5_core"));
    for directory in [&path, &driver] {
        fs::create_dir(directory).unwrap();
    }
    for file in ["bind", "unbind"] {
        fs::write(driver.join(file), "").unwrap();
    }
    let function = Function {
        physical: path.clone(),
        path: path.clone(),
        number: 0,
        driver: driver.clone(),
        node_guid: Guid(1),
        port_guid: Guid(1),
        link_state: None,
    };
    let written = |file: &str| fs::read_to_string(driver.join(file)).unwrap();
    unbind(&function).unwrap();
    assert_eq!(written("unbind"), "", "no driver has it");
    assert!(bind(&function).unwrap());
    assert_eq!(written("bind"), "0000:3b:00.2");
    symlink(&driver, path.join("driver")).unwrap();
    fs::write(driver.join("bind"), "").unwrap();
    assert!(!bind(&function).unwrap(), "a driver has it");
    assert_eq!(written("bind"), "");
    unbind(&function).unwrap();
    assert_eq!(written("unbind"), "0000:3b:00.2");
    fs::remove_dir_all(&driver).unwrap();
    fs::remove_file(path.join("driver")).unwrap();
    bind(&function).unwrap_err();
}
