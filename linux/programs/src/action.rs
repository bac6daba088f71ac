//! What one process is asked to do, and what it answers.

use crate::contents::Contents;
use serde::{Deserialize, Serialize};

/// A thing of a process: a buffer, lent memory, a message that was received.
pub type Id = u32;

/// What a process is to do, at once and without waiting for what the model has not seen happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "`Op` says what each does")]
pub enum Action {
    /// Takes a buffer without waiting and fills it.
    Buffer {
        channel: usize,
        id: Id,
        len: usize,
        stamp: u64,
    },
    Store {
        id: Id,
        at: usize,
        len: usize,
        stamp: u64,
    },
    WriteFrom {
        id: Id,
        len: usize,
        stamp: u64,
        past: bool,
    },
    Cut {
        id: Id,
        len: usize,
    },
    /// What comes of it has the buffer's number.
    Loan {
        channel: usize,
        id: Id,
        tag: u64,
    },
    CopyBuffer {
        channel: usize,
        id: Id,
    },
    Donate {
        channel: usize,
        id: Id,
        tag: u64,
    },
    DonateZero {
        channel: usize,
        id: Id,
    },
    Share {
        channel: usize,
        id: Id,
    },
    Copy {
        channel: usize,
        len: usize,
        stamp: u64,
        tag: u64,
    },
    Resend {
        channel: usize,
        id: Id,
        new: Id,
    },
    Forward {
        channel: usize,
        id: Id,
    },
    /// A sender stores to what it has lent. `lands`: it sees that itself; otherwise nothing is changed anywhere.
    Stray {
        id: Id,
        at: usize,
        len: usize,
        stamp: u64,
        lands: bool,
    },
    /// It is home, so it comes at once; the buffer has the same number.
    Wait {
        id: Id,
        contents: Contents,
    },
    /// It is not home, and must not say that it is.
    IsOut {
        id: Id,
    },
    /// Looks at every byte, and drops it.
    Drop {
        id: Id,
        contents: Contents,
    },
    /// Takes the next message, and looks at it.
    Receive {
        channel: usize,
        id: Id,
        shared: bool,
        expect: Option<Content>,
    },
    Write {
        id: Id,
        at: usize,
        len: usize,
        stamp: u64,
    },
    Transfer {
        id: Id,
        contents: Contents,
    },
    /// Looks at every byte.
    Check {
        id: Id,
        contents: Contents,
    },
    /// The counters of an end.
    CountSender {
        channel: usize,
    },
    CountReceiver {
        channel: usize,
    },
    EndSender {
        channel: usize,
    },
    EndReceiver {
        channel: usize,
    },
}

/// What a message must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Its bytes.
    pub contents: Contents,
    /// Its tag.
    pub tag: u64,
    /// How many messages came before on the channel.
    pub sequence: u64,
    /// It comes as memory that is shared.
    pub shared: bool,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It was done.
    Done,
    /// It would have to wait.
    WouldBlock,
    /// The peer is gone.
    Dead,
    /// The caller asked for what cannot be.
    Refused,
    /// A sender's counters: sent, out, slots taken.
    Sent(u64, u64, u32),
    /// A receiver's counters: received, slots held, bytes held, loans that wait for the end of a child.
    Received(u64, u32, u64, usize),
    /// What must not happen, in words.
    Wrong(String),
}

/// An action of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which process.
    pub process: usize,
    /// What it does.
    pub action: Action,
    /// It touches only what its process has for itself, so other processes may do anything meanwhile.
    pub local: bool,
}
