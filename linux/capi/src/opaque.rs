//! What handles look like to C: pointers to types that have no contents.

/// The sending end of a channel. A handle: see the top of this file.
pub struct pf_sender(());
/// The receiving end of a channel. A handle: see the top of this file.
pub struct pf_receiver(());
/// A place where others connect. A handle: see the top of this file.
pub struct pf_listener(());
/// Memory of the sender, to be filled and sent. A handle: see the top of this file.
pub struct pf_buffer(());
/// Memory that was sent, as its sender has it. A handle: see the top of this file.
pub struct pf_lent(());
/// A message that was received. A handle: see the top of this file.
pub struct pf_loan(());
