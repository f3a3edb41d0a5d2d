// SPDX-License-Identifier: Apache-2.0
use super::{Reader, is_read};
use crate::cni::Code;
use std::fs::OpenOptions;
use std::io::pipe;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

#[test]
fn a_pipe_is_read_until_its_reader_closes_it() {
    let (reader, writer) = pipe().unwrap();
    assert!(is_read(writer.as_fd()));
    drop(reader);
    assert!(!is_read(writer.as_fd()));
}

#[test]
fn a_socket_is_read_until_its_peer_closes_it() {
    let (peer, socket) = UnixStream::pair().unwrap();
    assert!(is_read(socket.as_fd()));
    drop(peer);
    assert!(!is_read(socket.as_fd()));
}

#[test]
fn a_file_is_read_and_null_only_if_the_caller_opened_it_for_writing() {
    assert!(is_read(tempfile::tempfile().unwrap().as_fd()));
    let null = |read: bool| {
        OpenOptions::new()
            .read(read)
            .write(true)
            .open("/dev/null")
            .unwrap()
    };
    assert!(is_read(null(false).as_fd()));
    assert!(!is_read(null(true).as_fd()));
}

#[test]
fn only_a_missing_reader_is_an_error() {
    Reader::PRESENT.require().unwrap();
    let error = Reader::ABSENT.require().unwrap_err();
    assert_eq!(error.code, Code::IO);
    assert!(error.msg.contains("nothing was done"), "{error:?}");
}
