//! Work that has a price: a second account of cycles, by what was done and not by why.
//!
//! Causes sum to the clock whatever was charged; that does not show a cycle too many or too few. So cycles of what each
//! unit has a price of are summed here as they are charged, while the units are counted where they happen
//! ([`Hardware`]), and the two must agree. Nothing reads it but [`Priced::check`].

use crate::account::Hardware;
use crate::params::Params;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Instructions of paths, slower beside a busy sibling.
    Instructions,
    /// Locked instructions of locks and paths.
    Locked,
    /// Switches of contexts.
    Switches,
    /// Ways into handlers of interrupts, and out.
    Interrupts,
    /// Invalidations of pages, by whatever instruction.
    Invalidations,
    /// Page-table walks: what each begins with, and lines.
    Walks,
}

const KINDS: usize = Work::Walks as usize + 1;

/// Cycles by work, all CPUs together, since the machine was made.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Priced([u64; KINDS]);

impl Priced {
    #[inline(always)]
    pub(super) fn add(&mut self, work: Work, cycles: u64) {
        self.0[work as usize] += cycles;
    }

    /// The law: what was charged is what was counted, at its price. Of instructions, so many thousandths of a cycle
    /// are not charged yet; so many CPUs are in handlers of interrupts.
    ///
    /// # Errors
    /// The work that it does not hold for, in words.
    pub(super) fn check(
        &self,
        counts: &Hardware,
        p: &Params,
        left_milli: u64,
        in_handlers: u64,
    ) -> Result<(), String> {
        let milli = self.0[Work::Instructions as usize] * 1000 + left_milli;
        let slowest = if p.threads_per_package > 1 { p.smt_slowdown_milli } else { 1000 };
        let alone = counts.instructions * p.cpi_milli;
        let entered = counts.interrupts * p.ipi_entry;
        let interrupts = entered + (counts.interrupts - in_handlers) * p.ipi_exit;
        let invalidations = [p.invalidate_page]
            .into_iter()
            .chain((p.asids > 0).then_some(p.invalidate_other))
            .chain(p.broadcast.map(|broadcast| broadcast.page))
            .map(|price| counts.page_invalidations * price);
        let (min, max) = (invalidations.clone().min(), invalidations.max());
        let exactly = |cycles: u64| (cycles, cycles);
        let bounds = [
            (Work::Locked, exactly(counts.locked_instructions * p.atomic)),
            (Work::Switches, exactly(counts.switches * p.context_switch)),
            (Work::Interrupts, exactly(interrupts)),
            (Work::Invalidations, (min.unwrap_or(0), max.unwrap_or(0))),
            (Work::Walks, (counts.walks * p.walk_overhead, u64::MAX)),
        ];
        let of_others = bounds.map(|(work, within)| (work, self.0[work as usize], within, "cycles"));
        let of_instructions =
            (Work::Instructions, milli, (alone, alone * slowest / 1000), "thousandths of a cycle");
        for (work, charged, (min, max), unit) in of_others.into_iter().chain([of_instructions]) {
            if !(min..=max).contains(&charged) {
                return Err(format!(
                    "{work:?}: {charged} {unit} were charged, what was counted costs {min} to {max}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MachineConfig;

    /// A machine's accounts after some work, each charged at its price.
    fn accounts() -> (Params, Hardware, Priced) {
        let p = Params::from_config(&MachineConfig::named("opteron-mp").expect("it is built in"));
        let counts = Hardware {
            instructions: 1001,
            locked_instructions: 7,
            switches: 3,
            interrupts: 5,
            page_invalidations: 11,
            walks: 2,
            ..Hardware::default()
        };
        let mut priced = Priced::default();
        priced.add(Work::Instructions, counts.instructions * p.cpi_milli / 1000);
        priced.add(Work::Locked, 7 * p.atomic);
        priced.add(Work::Switches, 3 * p.context_switch);
        priced.add(Work::Interrupts, 5 * (p.ipi_entry + p.ipi_exit));
        priced.add(Work::Invalidations, 11 * p.invalidate_page);
        priced.add(Work::Walks, 2 * p.walk_overhead);
        (p, counts, priced)
    }

    #[test]
    fn a_cycle_more_or_less_of_what_has_a_price_is_found() {
        let (p, counts, priced) = accounts();
        let left = counts.instructions * p.cpi_milli % 1000;
        assert_eq!(priced.check(&counts, &p, left, 0), Ok(()));
        let works = [Work::Instructions, Work::Locked, Work::Switches, Work::Interrupts, Work::Invalidations];
        for work in works {
            for by in [1, -1i64] {
                let mut wrong = priced;
                wrong.0[work as usize] = wrong.0[work as usize].wrapping_add_signed(by);
                let said = wrong.check(&counts, &p, left, 0).expect_err("it is wrong");
                assert!(said.starts_with(&format!("{work:?}: ")), "{said}");
            }
        }
        let mut wrong = priced;
        wrong.0[Work::Walks as usize] -= 1;
        assert!(wrong.check(&counts, &p, left, 0).is_err());
        // What instructions leave of a cycle is kept: it is not lost at the end of each path.
        assert!(left > 0 && priced.check(&counts, &p, 0, 0).is_err());
    }

    #[test]
    fn a_handler_that_goes_on_has_not_paid_for_its_way_out() {
        let (p, counts, mut priced) = accounts();
        let left = counts.instructions * p.cpi_milli % 1000;
        priced.0[Work::Interrupts as usize] -= p.ipi_exit;
        assert_eq!(priced.check(&counts, &p, left, 1), Ok(()));
        assert!(priced.check(&counts, &p, left, 0).is_err());
    }
}
