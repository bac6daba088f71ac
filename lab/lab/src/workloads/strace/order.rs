//! What of one process must wait for what of another.
//!
//! A process makes its calls one after the other, as it did when it was recorded. Between processes only that order is
//! kept on which a result may depend: of two calls on one thing, of which one changes it, the one that counts first is
//! made first. All calls count in one order (`moments`), in which each process's are in theirs, so no processes wait in
//! a circle.

use std::collections::BTreeMap;

/// What calls of two processes may meet at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Thing {
    /// A path: the calls that make it, take it away or look it up.
    Name(String),
    /// The names in a directory: makers beside each other, listers alone.
    Names(String),
    /// The bytes and the length of a file.
    Bytes(usize),
    /// An open file, and so its offset, or one end of a pipe.
    Open(usize),
    /// One end of a pipe, however often it was opened.
    End(usize),
    /// That somebody may read from a pipe: writers beside each other, whoever closes an end to read from alone.
    Readers(usize),
}

/// A process by its number in the plan, and how many of its calls must be over.
pub(super) type After = (usize, usize);

/// What was done last with a thing: by whom alone, and by whom beside others.
#[derive(Default)]
struct LastUses {
    alone: Option<After>,
    beside: BTreeMap<usize, usize>,
}

/// Which calls must wait for which, as far as the plan has come.
#[derive(Default)]
pub(super) struct Order {
    met: BTreeMap<Thing, LastUses>,
    /// Of each process: what it knows to be over of each other one.
    known: Vec<BTreeMap<usize, usize>>,
}

impl Order {
    /// One more process; what its parent knows is known to it, and all that its parent has done.
    pub(super) fn add(&mut self, parent: Option<After>) {
        let known = parent.map_or_else(BTreeMap::new, |(parent, done)| {
            let mut known = self.known[parent].clone();
            known.insert(parent, done);
            known
        });
        self.known.push(known);
    }

    /// A process has waited for another's end.
    pub(super) fn waited(&mut self, process: usize, (child, done): After) {
        // It knows nothing any more.
        let of_child = std::mem::take(&mut self.known[child]);
        for (other, done) in of_child.into_iter().chain([(child, done)]) {
            let known = self.known[process].entry(other).or_default();
            *known = done.max(*known);
        }
    }

    /// Call number `number` of a process meets others at these things, alone or beside others of its kind. Answers what
    /// must be over.
    pub(super) fn meet(
        &mut self,
        process: usize,
        number: usize,
        things: impl IntoIterator<Item = (Thing, bool)>,
    ) -> Vec<After> {
        let mut after: BTreeMap<usize, usize> = BTreeMap::new();
        let mut wait = |(other, done): After| {
            if other != process {
                let max = after.entry(other).or_default();
                *max = done.max(*max);
            }
        };
        for (thing, alone) in things {
            let met = self.met.entry(thing).or_default();
            met.alone.into_iter().for_each(&mut wait);
            if alone {
                std::mem::take(&mut met.beside).into_iter().for_each(&mut wait);
                met.alone = Some((process, number + 1));
            } else {
                met.beside.insert(process, number + 1);
            }
        }
        let known = &mut self.known[process];
        after.retain(|other, done| known.get(other).is_none_or(|known| *known < *done));
        for (other, done) in &after {
            known.insert(*other, *done);
        }
        after.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_matter_is_kept_in_order() {
        let bytes = |alone| [(Thing::Bytes(0), alone)];
        let mut order = Order::default();
        order.add(None);
        order.add(None);
        assert_eq!(order.meet(0, 0, bytes(false)), []);
        assert_eq!(order.meet(1, 0, bytes(false)), [], "both read");
        assert_eq!(order.meet(1, 1, bytes(true)), [(0, 1)], "a write waits for the other's read");
        assert_eq!(order.meet(0, 1, bytes(false)), [(1, 2)], "a read waits for the other's write");
        assert_eq!(order.meet(0, 2, bytes(false)), [], "it knows");
        order.add(Some((0, 3)));
        assert_eq!(order.meet(2, 0, bytes(false)), [], "its child knows, too");
        assert_eq!(order.meet(2, 1, bytes(true)), [], "and all that it waited for");
        order.waited(0, (2, 2));
        assert_eq!(order.meet(0, 3, bytes(true)), [], "a process that is over is known to be");
    }
}
