//! How a program ends: all that is left is received, looked at and dropped, in one of four orders.

use crate::action::Turn;
use crate::model::Model;
use crate::program::Op;

#[derive(Clone, Copy)]
enum Phase {
    Receive,
    Return,
    DropSent,
    Count,
    EndSenders,
    EndReceivers,
}

use Phase::{Count, DropSent, EndReceivers, EndSenders, Receive, Return};

const ORDERS: [&[Phase]; 4] = [
    &[Receive, Return, DropSent, Count, EndReceivers, EndSenders],
    &[DropSent, Receive, Return, Count, EndSenders, EndReceivers],
    &[EndSenders, Receive, DropSent, Return, EndReceivers],
    &[EndReceivers, Return, EndSenders, DropSent],
];

impl Model {
    /// The next turn of the end; `None`: nothing is left, and both ends of every channel are dropped.
    pub fn end(&mut self) -> Option<Turn> {
        let order = ORDERS[usize::from(self.shape().ending) % ORDERS.len()];
        while let Some(&phase) = order.get(self.ending.phase) {
            if let Some(op) = self.ending_op(phase)
                && let Some(turn) = self.step(&op)
            {
                return Some(turn);
            }
            self.ending.phase += 1;
        }
        None
    }

    fn ending_op(&mut self, phase: Phase) -> Option<Op> {
        self.ending.picked += 7;
        let which = self.ending.picked;
        match phase {
            Receive => {
                let open: Vec<_> = self.channels().iter().filter(|channel| channel.receiver).collect();
                let waits = open.iter().position(|channel| !channel.queue.is_empty())?;
                Some(Op::Receive { channel: waits, shared: which.is_multiple_of(2) })
            }
            Return => (self.count(false) > 0).then_some(Op::Return { which }),
            DropSent => (self.count(true) > 0).then_some(Op::Drop { which }),
            Count => {
                let whole =
                    self.channels().iter().filter(|channel| channel.sender && channel.receiver).count();
                self.ending.counted += 1;
                (self.ending.counted <= whole).then(|| Op::Count { channel: self.ending.counted - 1 })
            }
            EndSenders => {
                let any = self.channels().iter().any(|channel| channel.sender);
                any.then_some(Op::EndSender { channel: which })
            }
            EndReceivers => {
                let any = self.channels().iter().any(|channel| channel.receiver);
                any.then_some(Op::EndReceiver { channel: which })
            }
        }
    }
}
