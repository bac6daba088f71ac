//! Which references of a program are worth keeping: those that a TLB or a cache could tell from a repetition.
//!
//! A [`Filter`] belongs to whoever records. It holds two small direct-mapped tables for fetches and two for data, one
//! of lines and one of pages, each entry the last line or page of its set. It keeps a reference that
//!
//! * changes the line that its set holds, or
//! * changes the page that its set holds, or
//! * is the first store to the line since the set holds it.
//!
//! What it drops refers to the line and the page that were the last of their sets, by the filter's sets and so by any
//! finer ones. A cache or a TLB, indexed by the lowest bits of line or page, with as many sets or more and LRU within a
//! set, hits there, and its order does not change: what it misses, replaces and marks as modified is as by the full
//! trace. (Entries that hold a page are marked when the page is first stored to, and lines when the line is. Both are
//! kept.)
//!
//! The tables are emptied every [`Rules::reset_every`] instructions, around system calls, when a page is first referred
//! to, and when it is first stored to. There a kernel may run, switch processes or flush, and nothing after it was
//! dropped on account of what came before.
//!
//! Nothing here fails, but rules must be good ones ([`Rules::problem`]).

use crate::record::{Kind, Rules};
use rustc_hash::FxHashMap;

const NOTHING: u64 = u64::MAX;

/// Says of each reference whether it is kept; see the [module](self).
pub struct Filter {
    rules: Rules,
    fetches: Tables,
    data: Tables,
    /// Instructions until the next reset.
    left: u32,
    /// Pages that were referred to; whether any was stored to.
    touched: FxHashMap<u64, bool>,
}

struct Tables {
    /// A line, and whether it was stored to.
    lines: Vec<(u64, bool)>,
    pages: Vec<u64>,
}

impl Tables {
    fn new(rules: &Rules) -> Tables {
        Tables {
            lines: vec![(NOTHING, false); rules.line_sets as usize],
            pages: vec![NOTHING; rules.page_sets as usize],
        }
    }

    fn clear(&mut self) {
        self.lines.fill((NOTHING, false));
        self.pages.fill(NOTHING);
    }

    fn changes(&mut self, line: u64, page: u64, store: bool) -> bool {
        let lines = self.lines.len() as u64 - 1;
        let (held, stored) = &mut self.lines[(line & lines) as usize];
        let mut changed = false;
        if *held != line {
            (*held, *stored) = (line, store);
            changed = true;
        } else if store && !*stored {
            *stored = true;
            changed = true;
        }
        let pages = self.pages.len() as u64 - 1;
        let held = &mut self.pages[(page & pages) as usize];
        changed |= *held != page;
        *held = page;
        changed
    }
}

impl Filter {
    /// A filter by `rules`, which are good ones.
    pub fn new(rules: Rules) -> Filter {
        assert_eq!(rules.problem(), None, "good rules");
        Filter {
            fetches: Tables::new(&rules),
            data: Tables::new(&rules),
            left: rules.reset_every,
            touched: FxHashMap::default(),
            rules,
        }
    }

    /// An instruction begins; its references follow, first that of its fetch.
    pub fn instruction(&mut self) {
        if self.left == 0 {
            self.forget();
            self.left = self.rules.reset_every;
        }
        self.left -= 1;
    }

    /// Whether this reference is kept. It lies within a line.
    pub fn keeps(&mut self, kind: Kind, address: u64) -> bool {
        let line = address >> self.rules.line_bytes.trailing_zeros();
        let page = address >> self.rules.page_bytes.trailing_zeros();
        let store = kind == Kind::Store;
        if !self.tables(kind).changes(line, page, store) {
            return false;
        }
        if self.touches(page, store) {
            self.forget();
            self.tables(kind).changes(line, page, store);
        }
        true
    }

    /// There is a system call here.
    pub fn call(&mut self) {
        self.forget();
    }

    fn tables(&mut self, kind: Kind) -> &mut Tables {
        if kind == Kind::Fetch { &mut self.fetches } else { &mut self.data }
    }

    /// Whether the page was never referred to, or never stored to and now is.
    fn touches(&mut self, page: u64, store: bool) -> bool {
        let mut new = false;
        let stored = self.touched.entry(page).or_insert_with(|| {
            new = true;
            false
        });
        new |= store && !*stored;
        *stored |= store;
        new
    }

    fn forget(&mut self) {
        self.fetches.clear();
        self.data.clear();
    }
}
