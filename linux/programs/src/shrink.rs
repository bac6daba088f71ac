//! Makes a failing program short: leaves steps out as long as it goes on failing (delta debugging).

use crate::program::{Program, Topology};

/// How a program fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The program.
    pub program: Program,
    /// What happened.
    pub message: String,
}

/// A program that fails and is as short as could be found within so many trials. `run` says how a program
/// fails. One that does not fail again is returned as it was.
pub fn shrink(failure: Failure, trials: usize, run: impl FnMut(&Program) -> Option<String>) -> Failure {
    let mut search = Search { best: failure, trials, run };
    let whole = search.best.program.clone();
    if !search.try_out(whole) {
        return search.best;
    }
    let mut alone = search.best.program.clone();
    alone.shape.topology = Topology::Alone(alone.shape.topology.channels().len());
    search.try_out(alone);
    let mut chunk = search.best.program.steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < search.best.program.steps.len() {
            let end = (at + chunk).min(search.best.program.steps.len());
            let shorter = search.best.program.without(at..end);
            if !search.try_out(shorter) {
                at = end;
            }
        }
        chunk /= 2;
    }
    for at in 0..search.best.program.steps.len() {
        let mut simpler = search.best.program.clone();
        if std::mem::replace(&mut simpler.steps[at].beside, false) {
            search.try_out(simpler);
        }
    }
    search.best
}

struct Search<F> {
    best: Failure,
    trials: usize,
    run: F,
}

impl<F: FnMut(&Program) -> Option<String>> Search<F> {
    /// Keeps `program` if it fails.
    fn try_out(&mut self, program: Program) -> bool {
        if self.trials == 0 {
            return false;
        }
        self.trials -= 1;
        match (self.run)(&program) {
            None => false,
            Some(message) => {
                self.best = Failure { program, message };
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Op;

    #[test]
    fn what_matters_is_left() {
        let program = Program::random(3, 200);
        let loans = |program: &Program| {
            program.steps.iter().filter(|step| matches!(step.op, Op::Loan { .. })).count()
        };
        let fails = |program: &Program| (loans(program) >= 2).then(|| "two loans".to_owned());
        let failure = Failure { program, message: "at first".to_owned() };
        let short = shrink(failure, 1000, fails);
        assert_eq!((short.program.steps.len(), loans(&short.program)), (2, 2));
        assert_eq!(short.message, "two loans");
    }
}
