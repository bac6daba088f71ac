//! What messages cost on a host, as numbers.
//!
//! # What it holds
//! [`HostCosts`]: the time of a message by each verb, at a number of sizes, and of the operations that it is
//! made of. Built-in values are of one host (`HostCosts::built_in`); `pageferry host calibrate` writes those
//! of another into a file.
//!
//! Choices reckon with the medians, in whole nanoseconds (`pageferry_costs`); the intervals are for people.

use pageferry_costs::{Arrived, MessageCosts, Placement};

/// A measured time, in nanoseconds: the median, and an interval that holds it with 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[cfg_attr(feature = "host-file", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Nanos {
    /// The median.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// What the sender did to a message since it was last sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "host-file",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "lowercase")
)]
pub enum Filled {
    /// It has filled it anew.
    Anew,
    /// Nothing: its bytes are those that were sent before.
    Before,
}

/// The time of a message, from the sender's call to the receiver's last byte read, at one size and in one situation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "host-file", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct MessageCost {
    /// Bytes.
    pub bytes: u64,
    /// What the receiver does with it.
    pub arrived: Arrived,
    /// What the sender did.
    pub filled: Filled,
    /// Where the two run.
    pub placement: Placement,
    /// By copy out of a slot.
    pub copy: Nanos,
    /// By loan at level mmu.
    pub loan: Nanos,
    /// By donation.
    pub donate: Nanos,
}

/// The time of an operation that messages are made of.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "host-file", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Primitive {
    /// Which: `freeze`, `open`, `store`, `read`, ...
    pub name: String,
    /// In which state: `hot`, `cold`, `mapped`, `untouched`, `near`, `far`, ... joined by spaces.
    pub state: String,
    /// Bytes that it is done to.
    pub bytes: u64,
    /// How long it takes.
    pub time: Nanos,
}

/// Which host was measured.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "host-file", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct HostName {
    /// The CPU's model name.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
    /// The day, as YYYY-MM-DD.
    pub date: String,
    /// What has measured.
    pub source: String,
}

/// What messages cost on a host.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "host-file", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct HostCosts {
    /// Which host.
    pub host: HostName,
    /// What a receiver pays for each page (4 KB) of a loan that it writes.
    pub written_page: Nanos,
    /// How long a side that waits should look before it sleeps.
    pub spin: Nanos,
    /// Messages of more bytes than these are cheaper through a slot than in the ring.
    pub max_inline_bytes: u64,
    /// The time of messages. Sizes ascend within a situation.
    #[cfg_attr(feature = "host-file", serde(rename = "message", default))]
    pub messages: Vec<MessageCost>,
    /// The time of operations.
    #[cfg_attr(feature = "host-file", serde(rename = "primitive", default))]
    pub primitives: Vec<Primitive>,
}

impl HostCosts {
    /// The source of what is built in.
    pub(crate) const BUILT_IN: &str = "built in";

    /// Measured on a guest with two CPUs of an AMD EPYC, Linux 6.18.44, in November 2026, both sides spinning: medians
    /// of two calibrations in which the CPUs shared a cache, and of three in which they did not.
    pub fn built_in() -> HostCosts {
        let exactly = |us: f64| Nanos { median: us * 1e3, low: us * 1e3, high: us * 1e3 };
        let mut messages = Vec::new();
        for (arrived, filled, placement, rows) in BUILT_IN {
            for &(kilobytes, copy, loan, donate) in rows {
                messages.push(MessageCost {
                    bytes: kilobytes << 10,
                    arrived,
                    filled,
                    placement,
                    copy: exactly(copy),
                    loan: exactly(loan),
                    donate: exactly(donate),
                });
            }
        }
        HostCosts {
            host: HostName {
                cpu: "AMD EPYC".to_owned(),
                kernel: "6.18.44".to_owned(),
                date: "2026-11-25".to_owned(),
                source: Self::BUILT_IN.to_owned(),
            },
            written_page: Nanos { median: 2210.0, low: 1410.0, high: 3060.0 },
            spin: exactly(20.0),
            max_inline_bytes: 16 << 10,
            messages,
            primitives: Vec::new(),
        }
    }

    /// The time of a message, by the medians of the sizes that were measured. Where only one placement was seen, it
    /// serves for both.
    pub(super) fn message(
        &self,
        bytes: usize,
        arrived: Arrived,
        filled: Filled,
        placement: Placement,
    ) -> MessageCosts {
        let of = |placement: Placement| {
            let fits = move |cost: &&MessageCost| {
                (cost.arrived, cost.filled, cost.placement) == (arrived, filled, placement)
            };
            self.messages.iter().filter(fits)
        };
        let other = if placement == Placement::Far { Placement::Near } else { Placement::Far };
        let placement = if of(placement).next().is_some() { placement } else { other };
        MessageCosts::at(of(placement).map(MessageCost::medians), bytes as u64, arrived)
    }
}

impl Nanos {
    /// The median, as choices reckon with it.
    pub(crate) fn whole(&self) -> u64 {
        // Files hold no negative times; what is too long for the type is as long as it can be.
        self.median.round() as u64
    }
}

impl MessageCost {
    fn medians(&self) -> MessageCosts {
        MessageCosts {
            bytes: self.bytes,
            copy_ns: self.copy.whole(),
            loan_ns: self.loan.whole(),
            donate_ns: self.donate.whole(),
        }
    }
}

/// Kilobytes, and microseconds by copy, loan and donation.
type Rows = &'static [(u64, f64, f64, f64)];

const UNTOUCHED_NEAR: Rows = &[
    (64, 2.0, 3.9, 6.5),
    (1024, 24.9, 2.9, 5.7),
    (4096, 118.0, 3.8, 7.2),
    (16384, 1205.0, 5.7, 10.4),
    (65536, 3819.0, 12.7, 21.5),
];

const UNTOUCHED_FAR: Rows = &[
    (64, 2.9, 4.4, 7.3),
    (1024, 25.8, 4.2, 6.9),
    (4096, 116.0, 3.8, 6.9),
    (16384, 1022.0, 5.4, 9.1),
    (65536, 3971.0, 14.3, 21.9),
];

const BUILT_IN: [(Arrived, Filled, Placement, Rows); 8] = [
    (Arrived::Untouched, Filled::Before, Placement::Near, UNTOUCHED_NEAR),
    (Arrived::Untouched, Filled::Before, Placement::Far, UNTOUCHED_FAR),
    // Not measured as such: filling costs all ways the same, so what is left is what the untouched message costs.
    (Arrived::Untouched, Filled::Anew, Placement::Near, UNTOUCHED_NEAR),
    (Arrived::Untouched, Filled::Anew, Placement::Far, UNTOUCHED_FAR),
    (
        Arrived::Touched,
        Filled::Anew,
        Placement::Far,
        &[
            (64, 42.1, 45.3, 48.3),
            (1024, 299.0, 484.0, 482.0),
            (4096, 1183.0, 1281.0, 1268.0),
            (16384, 2338.0, 2093.0, 2251.0),
            (65536, 9321.0, 5175.0, 5282.0),
        ],
    ),
    (
        Arrived::Touched,
        Filled::Anew,
        Placement::Near,
        &[
            (64, 12.2, 13.8, 16.9),
            (1024, 60.3, 47.7, 51.1),
            (4096, 253.0, 141.0, 145.0),
            (16384, 1910.0, 1094.0, 1082.0),
            (65536, 8705.0, 4954.0, 5017.0),
        ],
    ),
    (
        Arrived::Touched,
        Filled::Before,
        Placement::Far,
        &[
            (64, 3.9, 5.4, 8.0),
            (1024, 37.6, 18.2, 23.3),
            (4096, 169.0, 54.0, 63.2),
            (16384, 1101.0, 499.0, 454.0),
            (65536, 6196.0, 2320.0, 2418.0),
        ],
    ),
    (
        Arrived::Touched,
        Filled::Before,
        Placement::Near,
        &[
            (64, 2.7, 4.2, 7.1),
            (1024, 38.1, 16.2, 21.5),
            (4096, 181.0, 60.6, 65.3),
            (16384, 1679.0, 610.0, 596.0),
            (65536, 5962.0, 2274.0, 2286.0),
        ],
    ),
];
