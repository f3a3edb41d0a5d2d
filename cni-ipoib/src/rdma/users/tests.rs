// SPDX-License-Identifier: Apache-2.0
use super::*;

fn user(creator: Creator) -> Option<User> {
    let pair = QueuePair {
        port: Some(1),
        creator,
    };
    let programs = [(4711, named("ib_write_bw", 4710))].into();
    User::of(&pair, &programs)
}

fn named(name: &str, process: u32) -> Program {
    let name = name.to_owned();
    Program { name, process }
}

fn module(name: &str) -> Creator {
    Creator::Module(name.to_owned())
}

#[test]
fn every_user_of_a_device_is_named_with_its_remedy() {
    for (creator, text, remedy) in [
        (
            module("ib_srp"),
            "the kernel module ib_srp",
            "end its connections first",
        ),
        (
            Creator::Program(Some(4711)),
            "the program ib_write_bw (process 4710)",
            "end it first",
        ),
        (Creator::Program(Some(4712)), "thread 4712", "end it first"),
        (
            Creator::Program(None),
            "a program that the kernel does not name",
            "end it first",
        ),
    ] {
        let user = user(creator).unwrap();
        assert_eq!((user.to_string().as_str(), user.remedy()), (text, remedy));
    }
}

#[test]
fn the_queue_pairs_of_an_idle_device_are_no_use() {
    for name in ["ib_core", "ib_ipoib", "mlx4_ib", "mlx5_ib"] {
        assert_eq!(user(module(name)), None, "{name}");
    }
}

#[test]
fn a_service_that_only_looks_up_addresses_or_targets_keeps_no_device() {
    let of = |name: &str| User::Program(named(name, 12)).is_service();
    assert!(of("ibacm") && of("srp_daemon"));
    assert!(!of("ibacm_tool") && !User::Unnamed(Some(12)).is_service());
    assert!(!User::Module("ib_srp".to_owned()).is_service());
}

#[test]
fn a_program_is_named_with_its_process_by_any_of_its_threads() {
    let process = std::process::id();
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
    let looked_up = std::thread::spawn(|| {
        let path = fs::read_link("/proc/thread-self").unwrap();
        let thread = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        (thread, program(thread))
    });
    let (thread, found) = looked_up.join().unwrap();
    assert_ne!(thread, process);
    assert_eq!(found, Some(named(name.trim_end(), process)));
    let pairs = [Creator::Program(Some(u32::MAX)), Creator::Program(None)];
    let pairs = pairs.map(|creator| QueuePair { port: None, creator });
    assert!(programs(pairs.iter()).is_empty(), "their threads have ended");
}
