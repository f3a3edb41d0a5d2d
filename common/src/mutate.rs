// SPDX-License-Identifier: Apache-2.0
//! Random changes to valid inputs, for the tests of all crates (feature `mutate`; no product is built with
//! it).
//!
//! Invariant: a seed gives the same changes on each machine, so that a failure can be reproduced.

use serde_json::{Map, Value, json};

/// Pseudo-random numbers, the same for the same seed (xorshift64*).
#[derive(Debug)]
pub struct Random(u64);

/// Texts that often break parsers.
const TEXTS: [&str; 24] = [
    "",
    "0",
    "-1",
    "/",
    "..",
    "10.0.0.0/0",
    "10.0.0.0/33",
    "::/0",
    "::ffff:10.0.0.1/120",
    "fd00::/64",
    "10.0.0.9-10.0.0.1",
    "255.255.255.255",
    "0.0.0.0",
    "none",
    "null",
    "\u{0}",
    "\u{feff}x",
    "é",
    "a b",
    "../../x",
    "-",
    "1.1.0",
    "9.9.9",
    "pools",
];

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or_default() % limit
    }

    /// Whether this is the one case of `chances`.
    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    /// One item of a list that is not empty.
    pub fn pick<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        &list[self.below(list.len())]
    }

    /// `usual`, or something else in its place.
    pub fn text(&mut self, usual: &str) -> String {
        match self.below(6) {
            0 => (*self.pick(&TEXTS)).to_owned(),
            1 => "a".repeat(self.below(5000)),
            2 => {
                let mut text = usual.as_bytes().to_vec();
                bytes(self, &mut text);
                String::from_utf8_lossy(&text).into_owned()
            }
            _ => usual.to_owned(),
        }
    }

    fn value(&mut self) -> Value {
        match self.below(12) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(self.next()),
            3 => json!(-1),
            4 => json!(1e308),
            5 => json!([]),
            6 => json!({}),
            7 => json!([null, [], {}, "", 0]),
            8 => (0..self.below(200)).fold(Value::Null, |inner, _| json!([inner])),
            9 => json!("a".repeat(self.below(70_000))),
            10 => Value::Array(vec![json!("10.0.0.7"); self.below(3000)]),
            _ => json!(self.pick(&TEXTS)),
        }
    }
}

/// Runs `case` for seeds one after the other: `usual` of them, or as many as `RDMANET_FUZZ_CASES` says, from the seed
/// `RDMANET_FUZZ_SEED` on. The name that `case` gets leads back to it.
pub fn cases(name: &str, usual: u64, mut case: impl FnMut(&str, &mut Random)) {
    let number =
        |variable: &str| std::env::var_os(variable).and_then(|value| value.to_str()?.parse::<u64>().ok());
    let (count, first) = (
        number("RDMANET_FUZZ_CASES").unwrap_or(usual),
        number("RDMANET_FUZZ_SEED").unwrap_or(1),
    );
    for seed in first..first + count {
        // A product with an odd number is never 0 for another seed than 0, which xorshift cannot leave.
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        case(
            &format!("{name}: RDMANET_FUZZ_SEED={seed} RDMANET_FUZZ_CASES=1"),
            &mut random,
        );
    }
}

/// Changes some bytes.
pub fn bytes(random: &mut Random, content: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        let at = random.below(content.len() + 1);
        match random.below(7) {
            0 => content.truncate(at),
            1 => content.insert(at, b"\0\"{}[],:\\/-.\n9"[random.below(14)]),
            2 if at < content.len() => content[at] ^= 1 << random.below(8),
            3 if at < content.len() => drop(content.remove(at)),
            4 => {
                let part: Vec<u8> = content[at..]
                    .iter()
                    .take(random.below(200) + 1)
                    .copied()
                    .collect();
                content.splice(at..at, part);
            }
            5 => drop(content.splice(at..at, random.pick(&TEXTS).bytes())),
            6 => content.extend(std::iter::repeat_n(b' ', random.below(9000))),
            _ => {}
        }
    }
}

/// Changes one value, anywhere.
pub fn json(random: &mut Random, value: &mut Value) {
    match value {
        Value::Object(object) if !object.is_empty() && !random.one_in(8) => in_object(random, object),
        Value::Array(list) if !list.is_empty() && !random.one_in(6) => {
            let at = random.below(list.len());
            match random.below(6) {
                0 => drop(list.remove(at)),
                1 => list.insert(at, random.value()),
                2 => list.insert(at, list[at].clone()),
                _ => json(random, &mut list[at]),
            }
        }
        Value::String(text) if !random.one_in(3) => *text = random.text(&text.clone()),
        other => *other = random.value(),
    }
}

fn in_object(random: &mut Random, object: &mut Map<String, Value>) {
    let keys: Vec<String> = object.keys().cloned().collect();
    let key = random.pick(&keys).clone();
    match random.below(8) {
        0 => drop(object.remove(&key)),
        1 => drop(object.insert(random.text(&key), random.value())),
        2 => drop(object.insert(key, random.value())),
        _ => {
            if let Some(inner) = object.get_mut(&key) {
                json(random, inner);
            }
        }
    }
}
