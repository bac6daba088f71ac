//! Makes a failing program short: leaves steps out as long as it goes on failing (delta debugging), then simplifies
//! those that are left.

use crate::episode::{Program, Scrutiny, Steps};
use crate::failure::Failure;
use crate::planted::Planted;

/// Programs that are tried, at most.
const TRIALS: usize = 600;

/// A program that fails and is as short as could be found, and how it fails. A failure that does not come again is
/// returned as it was.
pub(crate) fn shrink(program: Program, failure: Failure, defect: Option<Planted>) -> (Program, Failure) {
    let mut search = Search { best: (program.clone(), failure), trials: TRIALS, defect };
    if !search.try_out(program) {
        return search.best;
    }
    // Nothing behind the failure matters.
    let len = search.best.0.len();
    let cut = search.best.0.without((search.best.1.step + 1).min(len)..len);
    search.try_out(cut);
    let mut chunk = search.best.0.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < search.best.0.len() {
            let end = (at + chunk).min(search.best.0.len());
            let shorter = search.best.0.without(at..end);
            if !search.try_out(shorter) {
                at = end;
            }
        }
        chunk /= 2;
    }
    for i in 0..search.best.0.len() {
        for simplify in SIMPLER {
            let mut simpler = search.best.0.clone();
            // Steps of other kinds have nothing to be simplified.
            let Steps::Memory(steps) = &mut simpler.steps else { return search.best };
            simplify(&mut steps[i]);
            if simpler != search.best.0 {
                search.try_out(simpler);
            }
        }
    }
    search.best
}

const SIMPLER: [fn(&mut crate::program::Step); 3] =
    [|step| step.fail = None, |step| step.cpu = 0, |step| step.beside = false];

struct Search {
    best: (Program, Failure),
    trials: usize,
    defect: Option<Planted>,
}

impl Search {
    /// Keeps `program` if it fails.
    fn try_out(&mut self, program: Program) -> bool {
        if self.trials == 0 {
            return false;
        }
        self.trials -= 1;
        match program.run_with(Scrutiny::Strict, self.defect) {
            Ok(()) => false,
            Err(failure) => {
                self.best = (program, failure);
                true
            }
        }
    }
}
