// SPDX-License-Identifier: Apache-2.0
use super::*;

#[tokio::test]
async fn a_process_stops_even_if_its_signal_handler_panics() {
    cancelled_after(async {}).cancelled().await;
    cancelled_after(async { panic!("on purpose") }).cancelled().await;
}
