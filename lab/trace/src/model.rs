//! What a record is likely to be, after those before it: the trace's packing.
//!
//! [`Model::code`] writes a record under an [`Encoder`](crate::coder::Encoder) and reads it under a
//! [`Decoder`](crate::coder::Decoder): one function, so the two cannot disagree. Tables remember what followed in the
//! same place of the program: which record comes next, and which line its data lies on. A right guess costs a fraction
//! of a bit; after wrong ones the value follows as a number.
//!
//! The model belongs to one writer or one reader and goes on from block to block. Nothing here fails: any bits give
//! some record.

use crate::coder::{Chance, Coder, EVEN};
use crate::record::{Kind, Record, SystemCall};
use std::hint::black_box;

/// Entries of a table of guesses, as a power of two.
const TABLE_BITS: u32 = 18;

const KINDS: [Kind; 4] = [Kind::Fetch, Kind::Load, Kind::Store, Kind::Call];

/// Bits of a guessed value; its trust is above them.
const GUESS_BITS: u32 = 61;

/// What is left out of guesses.
const NO_GUESS: u64 = (1 << GUESS_BITS) - 1;

/// A record as the model sees it.
#[derive(Clone, Copy)]
struct Step {
    kind: u8,
    instructions: u32,
    /// The line of a fetch; of others 0.
    line: u64,
}

impl Step {
    /// In one word, or [`NO_GUESS`] if it takes more.
    fn packed(self) -> u64 {
        let fits = self.instructions < 1 << 14 && self.line < 1 << 44;
        let packed = u64::from(self.kind) | u64::from(self.instructions) << 2 | self.line << 16;
        if fits { packed } else { NO_GUESS }
    }

    fn unpacked(packed: u64) -> Step {
        Step { kind: packed as u8 & 3, instructions: (packed >> 2 & 0x3fff) as u32, line: packed >> 16 }
    }
}

/// What followed last in some place, and what followed before that. Above the first: how often it was right lately, 0
/// to 7.
#[derive(Clone, Copy)]
struct Guess {
    first: u64,
    other: u64,
}

impl Guess {
    const NONE: Guess = Guess { first: 0, other: 0 };

    fn new(value: u64, other: u64, trust: u64) -> Guess {
        Guess { first: value | trust << GUESS_BITS, other }
    }

    fn value(self) -> u64 {
        self.first & NO_GUESS
    }

    fn trust(self) -> u8 {
        (self.first >> GUESS_BITS) as u8
    }

    /// A value that proved right often is not given up at once.
    fn learned(self, value: u64) -> Guess {
        let trust = self.first >> GUESS_BITS;
        match self.value() {
            first if first == value => Guess::new(first, self.other, (trust + 1).min(7)),
            first if trust > 1 => Guess::new(first, value, trust / 2),
            first => Guess::new(value, first, 0),
        }
    }

    /// The first is always that which came last, `other` the one before.
    fn followed(self, value: u64) -> Guess {
        let (first, trust) = (self.value(), self.first >> GUESS_BITS);
        Guess::new(value, first, if first == value { (trust + 1).min(7) } else { trust / 2 })
    }
}

/// Bytes of the smallest pages that hosts have.
const HOST_PAGE: usize = 4096;

/// Traces of fewer records leave most pages of the tables untouched.
const SHORT: u64 = 1 << 18;

/// Guesses by context. Contexts that fall on the same entry share it. Guesses are kept as bare numbers, because a table
/// of zeros is had from the host without touching it: reading a short trace takes the memory that it uses, not 32 MB.
struct Table(Box<[[u64; 2]]>);

/// Where in a table.
#[derive(Clone, Copy)]
struct At(usize);

impl At {
    fn of(context: u64) -> At {
        At((context.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TABLE_BITS)) as usize)
    }
}

impl Table {
    fn new(records: u64) -> Table {
        let mut entries = vec![[0; 2]; 1 << TABLE_BITS].into_boxed_slice();
        if records >= SHORT {
            // An entry is read before it is written. The host would map each page twice: one of zeros that all share,
            // and then its own, with a shootdown if it has other threads.
            for page in entries.chunks_mut(HOST_PAGE / size_of::<[u64; 2]>()) {
                page[0] = black_box([0; 2]);
            }
        }
        Table(entries)
    }

    fn get(&self, at: At) -> Guess {
        let [first, other] = self.0[at.0];
        Guess { first, other }
    }

    fn learn(&mut self, at: At, value: u64) {
        self.put(at, self.get(at).learned(value));
    }

    fn put(&mut self, at: At, Guess { first, other }: Guess) {
        self.0[at.0] = [first, other];
    }
}

fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.wrapping_mul(0xff51_afd7_ed55_8ccd)).rotate_left(23).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

/// Whether each of several guesses is right, asked in turn: chances by the guess, its trust, and the luck of those
/// before.
struct Guesses<const N: usize> {
    chances: [[Chance; 64]; N],
    luck: usize,
}

impl<const N: usize> Guesses<N> {
    const NEW: Guesses<N> = Guesses { chances: [[EVEN; 64]; N], luck: 0 };

    /// The first that is right. One that repeats another is not asked.
    fn first<C: Coder>(&mut self, coder: &mut C, guesses: [(u64, u8); N], wanted: u64) -> Option<u64> {
        for (at, &(guess, trust)) in guesses.iter().enumerate() {
            if guesses[..at].iter().any(|&(earlier, _)| earlier == guess) {
                continue;
            }
            let chance = &mut self.chances[at][usize::from(trust) << 3 | self.luck & 7];
            let right = coder.bit(chance, guess == wanted && guess != NO_GUESS);
            self.luck = self.luck << 1 | usize::from(right);
            if right {
                return Some(guess);
            }
        }
        None
    }
}

/// Numbers: their length in bits, then the bits behind the first, the highest of which adapt.
struct Numbers {
    lengths: [Chance; 128],
    high: [Chance; 65 * 8],
}

impl Numbers {
    const NEW: Numbers = Numbers { lengths: [EVEN; 128], high: [EVEN; 65 * 8] };

    fn code<C: Coder>(&mut self, coder: &mut C, value: u64) -> u64 {
        let wanted = 64 - value.leading_zeros();
        let mut node = 1;
        for at in (0..7).rev() {
            node = node << 1 | usize::from(coder.bit(&mut self.lengths[node], wanted >> at & 1 == 1));
        }
        // Greater lengths are in no sound file.
        let length = (node as u32 - 128).min(64);
        if length < 2 {
            return u64::from(length);
        }
        let modelled = (length - 1).min(3);
        let plain = length - 1 - modelled;
        let mut prefix = 1_u64;
        for at in (plain..length - 1).rev() {
            let chance = &mut self.high[length as usize * 8 + prefix as usize];
            prefix = prefix << 1 | u64::from(coder.bit(chance, value >> at & 1 == 1));
        }
        prefix << plain | coder.plain(plain, value)
    }

    /// A difference: near 0 in either direction is short.
    fn signed<C: Coder>(&mut self, coder: &mut C, value: u64) -> u64 {
        let folded = value << 1 ^ (value as i64 >> 63) as u64;
        let folded = self.code(coder, folded);
        folded >> 1 ^ (folded & 1).wrapping_neg()
    }
}

/// Chances of what the next reference is, by those before it.
pub(crate) struct Model {
    line_shift: u32,
    /// The lines fetched last, the latest first, and instructions since.
    fetched: [u64; 3],
    since: u64,
    /// The records before this one as hashes, the latest first.
    history: [u64; 4],
    last: u8,
    /// The lines of data referred to last, the latest first.
    data: [u64; 2],
    /// What is guessed of the next record, and of the next line of data by those before it. Both are known one record
    /// ahead, and the tables are larger than a host's caches: what is asked for early is there when it is used.
    next_step: [(At, Guess); 2],
    next_data: [(At, Guess); 2],

    by_history: Table,
    by_place: Table,
    exits: Table,
    data_by_last_and_place: Table,
    data_by_last_two: Table,
    data_by_path: Table,
    data_by_place: Table,
    data_by_last: Table,

    step_guesses: Guesses<4>,
    exit_guess: Guesses<1>,
    data_guesses: Guesses<6>,
    kinds: [[Chance; 4]; 4],
    counts: [Numbers; 4],
    fetch_differences: Numbers,
    data_differences: [Numbers; 2],
    calls: Numbers,
}

impl Model {
    /// For a trace of about so many records.
    pub(crate) fn new(line_bytes: u32, records: u64) -> Model {
        let table = || Table::new(records);
        let mut model = Model {
            line_shift: line_bytes.trailing_zeros(),
            fetched: [0; 3],
            since: 0,
            history: [0; 4],
            last: 0,
            data: [0; 2],
            next_step: [(At::of(0), Guess::NONE); 2],
            next_data: [(At::of(0), Guess::NONE); 2],
            by_history: table(),
            by_place: table(),
            exits: table(),
            data_by_last_and_place: table(),
            data_by_last_two: table(),
            data_by_path: table(),
            data_by_place: table(),
            data_by_last: table(),
            step_guesses: Guesses::NEW,
            exit_guess: Guesses::NEW,
            data_guesses: Guesses::NEW,
            kinds: [[EVEN; 4]; 4],
            counts: [const { Numbers::NEW }; 4],
            fetch_differences: Numbers::NEW,
            data_differences: [const { Numbers::NEW }; 2],
            calls: Numbers::NEW,
        };
        model.guess_step();
        model.guess_data();
        model
    }

    /// The next record: `record` to an encoder, whatever comes from a decoder. If it is a call,
    /// [`code_call`](Model::code_call) follows.
    pub(crate) fn code<C: Coder>(&mut self, coder: &mut C, record: Record) -> Record {
        let line = record.address >> self.line_shift;
        let wanted = Step {
            kind: record.kind as u8,
            instructions: record.instructions,
            line: if record.kind == Kind::Fetch { line } else { 0 },
        };
        let step = self.step(coder, wanted);
        self.since = self.since.wrapping_add(u64::from(step.instructions));
        self.last = step.kind;
        if step.kind == 0 {
            self.fetched = [step.line, self.fetched[0], self.fetched[1]];
            self.since = 0;
        }
        self.guess_step();
        let line = match step.kind {
            0 => step.line,
            1 | 2 => self.data(coder, step.kind, line),
            _ => 0,
        };
        Record {
            kind: KINDS[usize::from(step.kind)],
            instructions: step.instructions,
            address: line << self.line_shift,
        }
    }

    /// The bits that a line's number may have.
    fn lines(&self) -> u64 {
        u64::MAX >> self.line_shift
    }

    /// Looks up what the next record may be.
    fn guess_step(&mut self) {
        let place = mix(self.fetched[0], self.since << 2 | u64::from(self.last));
        let [_, h1, h2, h3] = self.history;
        let (long, short) = (At::of(mix(mix(mix(h1, h2), h3), place)), At::of(place));
        self.next_step = [(long, self.by_history.get(long)), (short, self.by_place.get(short))];
    }

    /// Looks up what the next line of data may be, as far as its place is not asked for.
    fn guess_data(&mut self) {
        let last_two = At::of(mix(self.data[0], self.data[1]));
        let last = At::of(mix(self.data[0], 1));
        self.next_data =
            [(last_two, self.data_by_last_two.get(last_two)), (last, self.data_by_last.get(last))];
    }

    fn step<C: Coder>(&mut self, coder: &mut C, wanted: Step) -> Step {
        let [(long, l), (short, s)] = self.next_step;
        let guesses =
            [(l.value(), l.trust()), (l.other, l.trust()), (s.value(), s.trust()), (s.other, s.trust())];
        let step = match self.step_guesses.first(coder, guesses, wanted.packed()) {
            Some(packed) => Step::unpacked(packed),
            None => self.step_in_full(coder, wanted),
        };
        if step.kind == 0 {
            let exit = self.exit(step.instructions);
            self.exits.learn(exit, step.line);
        }
        let packed = step.packed();
        self.by_history.put(long, l.learned(packed));
        self.by_place.put(short, s.learned(packed));
        self.history = [packed, self.history[0], self.history[1], self.history[2]];
        step
    }

    /// The place that an instruction leaves for another line.
    fn exit(&self, instructions: u32) -> At {
        At::of(mix(self.fetched[0], self.since.wrapping_add(u64::from(instructions))))
    }

    fn step_in_full<C: Coder>(&mut self, coder: &mut C, wanted: Step) -> Step {
        let chances = &mut self.kinds[usize::from(self.last)];
        let high = coder.bit(&mut chances[1], wanted.kind >> 1 == 1);
        let low = coder.bit(&mut chances[2 + usize::from(high)], wanted.kind & 1 == 1);
        let kind = u8::from(high) << 1 | u8::from(low);
        let instructions = self.counts[usize::from(kind)].code(coder, u64::from(wanted.instructions)) as u32;
        let mut line = 0;
        if kind == 0 {
            let exit = self.exits.get(self.exit(instructions));
            line = match self.exit_guess.first(coder, [(exit.value(), exit.trust())], wanted.line) {
                Some(line) => line,
                None => {
                    let before = self.fetched[0];
                    let difference = wanted.line.wrapping_sub(before);
                    before.wrapping_add(self.fetch_differences.signed(coder, difference)) & self.lines()
                }
            };
        }
        Step { kind, instructions, line }
    }

    fn data<C: Coder>(&mut self, coder: &mut C, kind: u8, wanted: u64) -> u64 {
        let here = mix(self.fetched[0], self.since << 2 | u64::from(kind));
        let place = At::of(here);
        let last_and_place = At::of(mix(self.data[0], here));
        let [(last_two, b), (last, e)] = self.next_data;
        let path = At::of(mix(mix(self.fetched[1], self.fetched[2]), here));
        let a = self.data_by_last_and_place.get(last_and_place);
        let c = self.data_by_path.get(path);
        let d = self.data_by_place.get(place);
        let stride = d.value().wrapping_mul(2).wrapping_sub(d.other) & self.lines();
        let guesses = [
            (a.value(), a.trust()),
            (b.value(), b.trust()),
            (c.value(), c.trust()),
            (d.value(), d.trust()),
            (e.value(), e.trust()),
            (stride, d.trust()),
        ];
        let line = match self.data_guesses.first(coder, guesses, wanted) {
            Some(line) => line,
            None => {
                let differences = &mut self.data_differences[usize::from(kind - 1)];
                let difference = differences.signed(coder, wanted.wrapping_sub(d.value()));
                d.value().wrapping_add(difference) & self.lines()
            }
        };
        self.data_by_last_and_place.put(last_and_place, a.learned(line));
        self.data_by_last_two.put(last_two, b.learned(line));
        self.data_by_path.put(path, c.learned(line));
        self.data_by_place.put(place, d.followed(line));
        self.data_by_last.put(last, e.learned(line));
        self.data = [line, self.data[0]];
        self.guess_data();
        line
    }

    /// The call of a record that is one.
    pub(crate) fn code_call<C: Coder>(&mut self, coder: &mut C, call: &SystemCall) -> SystemCall {
        let mut number = |value| self.calls.code(coder, value);
        let (wanted, result) = (u64::from(call.number), call.result.unwrap_or(0) as u64);
        SystemCall {
            number: number(wanted) as u32,
            arguments: call.arguments.map(&mut number),
            result: (number(u64::from(call.result.is_some())) != 0).then(|| number(result) as i64),
        }
    }
}
