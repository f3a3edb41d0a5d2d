// SPDX-License-Identifier: Apache-2.0
//! Random changes to valid inputs, for the tests of all crates (feature `testing`; no product is built with
//! it).
//!
//! Invariant: a seed gives the same changes on each machine, so that a failure can be reproduced.

#[cfg(feature = "guided")]
mod guided;

use serde_json::{Map, Value, json};

/// Pseudo-random numbers, the same for the same seed (xorshift64*). The first ones may come from an input.
#[derive(Debug)]
pub struct Random {
    state: u64,
    /// What is left of the input, in reverse.
    input: Vec<u8>,
}

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
    fn seeded(seed: u64) -> Self {
        // A product with an odd number is never 0 for another seed than 0, which xorshift cannot leave.
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let input = Vec::new();
        Self { state, input }
    }

    /// Numbers that `input` determines: a byte of it for each choice among 256 or fewer, four bytes for others.
    #[cfg(feature = "guided")]
    fn of(input: &[u8]) -> Self {
        let input = input.iter().rev().copied().collect();
        Self {
            input,
            ..Self::seeded(1)
        }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if self.input.is_empty() {
            return usize::try_from(self.next() >> 33).unwrap_or_default() % limit;
        }
        let length = if limit <= 256 { 1 } else { 4 };
        let bytes = (0..length).filter_map(|_| self.input.pop());
        bytes.fold(0, |number, byte| number << 8 | usize::from(byte)) % limit
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

/// Runs `case` for seeds one after the other: `usual` of them, or `RDMANET_FUZZ_CASES` of them, from the seed
/// `RDMANET_FUZZ_SEED` on. The name that `case` gets leads back to it. With the feature `guided` and `RDMANET_GUIDED`, libFuzzer
/// chooses the cases instead.
pub fn cases(name: &str, usual: u64, mut case: impl FnMut(&str, &mut Random)) {
    #[cfg(feature = "guided")]
    guided::run(name, &mut case);
    let number =
        |variable: &str| std::env::var_os(variable).and_then(|value| value.to_str()?.parse::<u64>().ok());
    let (count, first) = (
        number("RDMANET_FUZZ_CASES").unwrap_or(usual),
        number("RDMANET_FUZZ_SEED").unwrap_or(1),
    );
    for seed in first..first + count {
        case(
            &format!("{name}: RDMANET_FUZZ_SEED={seed} RDMANET_FUZZ_CASES=1"),
            &mut Random::seeded(seed),
        );
    }
}

/// Changes some bytes.
pub fn bytes(random: &mut Random, content: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        let at = random.below(content.len() + 1);
        match random.below(9) {
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
            7 => content.insert(at, u8::try_from(random.below(256)).unwrap_or_default()),
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
