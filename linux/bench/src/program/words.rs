//! What the runner and a program say to each other, a line of JSON each.

use crate::cell::Pattern;
use serde::{Deserialize, Serialize};

/// Runner to program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Make what is needed for messages of so many bytes.
    Open {
        /// Of one message.
        bytes: usize,
    },
    /// Send messages, and say what one took.
    Send {
        /// What both sides do with them.
        pattern: Pattern,
        /// Messages that come first, and are not timed.
        warm: u32,
        /// Messages that are.
        rounds: u32,
        /// The receiver compares every byte.
        check: bool,
    },
    /// Give it back.
    Close,
}

/// Program to runner: one as the program starts, and one for each order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It has started: what the method is made by.
    Ready(String),
    /// It has started, and what the method needs is not there.
    Missing(String),
    /// The order was carried out.
    Done,
    /// The messages arrived as they were sent: nanoseconds of one.
    Nanos(f64),
    /// The order failed, and the program ends.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_that_programs_in_other_languages_know() {
        let send = Order::Send { pattern: Pattern::Refilled, warm: 1, rounds: 20, check: false };
        let lines = [
            (Order::Open { bytes: 65536 }, r#"{"open":{"bytes":65536}}"#),
            (send, r#"{"send":{"pattern":"refilled","warm":1,"rounds":20,"check":false}}"#),
            (Order::Close, r#""close""#),
        ];
        for (order, line) in lines {
            assert_eq!(serde_json::to_string(&order).unwrap(), line);
            assert_eq!(serde_json::from_str::<Order>(line).unwrap(), order);
        }
        let lines = [
            (Answer::Ready("numpy 2".to_owned()), r#"{"ready": "numpy 2"}"#),
            (Answer::Missing("torch".to_owned()), r#"{"missing": "torch"}"#),
            (Answer::Done, r#""done""#),
            (Answer::Nanos(12.0), r#"{"nanos": 12}"#),
            (Answer::Failed("\u{e9}".to_owned()), r#"{"failed": "\u00e9"}"#),
        ];
        for (answer, line) in lines {
            assert_eq!(serde_json::from_str::<Answer>(line).unwrap(), answer);
        }
        for line in ["", "{}", "12", r#""done"x"#, r#"{"nanos": "fast"}"#, "{\"open\":{}}"] {
            assert!(serde_json::from_str::<Answer>(line).is_err(), "{line}");
        }
    }
}
