// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::intent::Sharing;

const FUNCTION: &str = "0000:3b:00.1";

fn pci() -> PciAddress {
    FUNCTION.parse().unwrap()
}

fn grant() -> Grant {
    crate::model::grant(None, Sharing::Shared)
}

#[test]
fn the_file_has_the_form_of_the_specification() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("made/on/the/way/pod.json");
    let (path, content) = to_write(Some(&file), Some(Hardware::Function(&pci())), Some(&grant())).unwrap();
    write(&path, &content).unwrap();
    let written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let expected = json!({
        "type": "pci",
        "version": "1.1.0",
        "pci": {"pci-address": "0000:3b:00.1", "rdma-device": "mlx5_1"},
    });
    assert_eq!(written, expected);
    assert_eq!(
        fs::read_dir(file.parent().unwrap()).unwrap().count(),
        1,
        "no temporary file is left"
    );
}

#[test]
fn without_an_rdma_device_its_key_is_left_out() {
    let (_, content) = to_write(
        Some(Path::new("/nowhere/x")),
        Some(Hardware::Function(&pci())),
        None,
    )
    .unwrap();
    assert_eq!(content["pci"], json!({"pci-address": "0000:3b:00.1"}));
}

#[test]
fn no_device_info_is_written_without_a_known_device() {
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("pod.json");
    fs::write(&there, "the device plugin's").unwrap();
    assert_eq!(
        to_write(None, Some(Hardware::Function(&pci())), None),
        None,
        "no file is requested"
    );
    assert_eq!(
        to_write(Some(&dir.path().join("new")), None, Some(&grant())),
        None,
        "no PCI device"
    );
    assert_eq!(
        to_write(Some(&there), Some(Hardware::Function(&pci())), None),
        None,
        "written already"
    );
    assert_eq!(fs::read_to_string(&there).unwrap(), "the device plugin's");
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let taken = dir.path().join("taken");
    fs::create_dir(&taken).unwrap();
    let below_a_file = dir.path().join("file/pod.json");
    fs::write(dir.path().join("file"), "").unwrap();
    for file in [taken, below_a_file] {
        let error = write(&file, &json!({})).unwrap_err().to_string();
        let remedy = "runtimeConfig.CNIDeviceInfoFile must name a file that root can write";
        assert_eq!(error, format!("cannot write {}; {remedy}", file.display()));
    }
    let mut left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["file", "taken"]);
}

#[test]
fn removing_ignores_a_missing_file_and_reports_other_errors() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pod.json");
    fs::write(&file, "{}").unwrap();
    remove(&file).unwrap();
    assert!(!file.exists());
    remove(&file).unwrap();
    assert!(remove(dir.path()).is_err());
}

#[test]
fn the_temporary_file_of_a_killed_call_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pod.json");
    fs::write(dir.path().join("pod.rdmanet-tmp"), "{").unwrap();
    remove(&file).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fs::write(dir.path().join("pod.rdmanet-tmp"), "{").unwrap();
    write(&file, &json!({})).unwrap();
    remove(&file).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_child_does_not_report_its_parents_function_as_its_own() {
    let file = Path::new("/nowhere/x");
    let (_, content) = to_write(Some(file), Some(Hardware::PartOf(&pci())), Some(&grant())).unwrap();
    let expected = json!({"pf-pci-address": FUNCTION, "rdma-device": "mlx5_1"});
    assert_eq!(content["pci"], expected);
}

#[test]
fn a_device_info_file_must_be_in_the_directory_of_multus() {
    let dirs = crate::config::DEVICE_INFO_DIRS.map(PathBuf::from);
    let judge = |file: &str| require_place(Some(Path::new(file)), &dirs);
    judge("/var/run/k8s.cni.cncf.io/devinfo/cni/ml-ib0-c1_0-device.json").unwrap();
    judge("/run/k8s.cni.cncf.io/devinfo/dp/x.json").unwrap();
    require_place(None, &dirs).unwrap();
    for file in [
        "/etc/nologin",
        "/etc/ld.so.preload",
        "/run/nologin",
        "/run/k8s.cni.cncf.io.json",
        "/run/k8s.cni.cncf.io/../nologin",
        "k8s.cni.cncf.io/x",
    ] {
        let text = judge(file).unwrap_err().to_string();
        let expected = "want a file below /run/k8s.cni.cncf.io or /var/run/k8s.cni.cncf.io";
        assert!(text.contains(file) && text.ends_with(expected), "{text}");
    }
}
