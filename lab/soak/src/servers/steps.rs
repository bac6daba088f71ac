//! What applications ask of servers, as plain data.

use pageferry_kernel::Method;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// Applications at a time.
pub const APPLICATIONS: usize = 3;
/// Services, each by a server of its own.
pub const SERVICES: usize = 2;
/// Pieces of one application at a time, beside that for its requests.
pub(super) const PIECES: usize = 3;
/// Pages of a piece, at most.
pub(super) const MAX_PAGES: usize = 2;
/// Bytes that one operation is about, at most.
const MAX_BYTES: usize = 96;
/// Pages of the area.
pub(super) const AREA_PAGES: usize = 256;
/// Where what an operation is about begins in its piece, at most.
const MAX_OFFSET: usize = MAX_PAGES * pageferry_hal::PAGE_SIZE - MAX_BYTES;

/// How memory is attached. See [`Method`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum By {
    Random,
    Previous,
    Proposed,
    /// As the one before, by pages of 1 KB where there are such.
    ProposedParts,
    Migrating,
}

impl By {
    const ALL: [By; 5] = [By::Random, By::Migrating, By::Previous, By::Proposed, By::ProposedParts];

    /// The same, for the kernel.
    pub(super) fn method(self) -> Method {
        match self {
            By::Random => Method::Random,
            By::Previous => Method::Previous,
            By::Proposed | By::ProposedParts => Method::Proposed,
            By::Migrating => Method::Migrating,
        }
    }
}

/// What is done, and how memory is attached meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Servers {
    /// The method.
    pub by: By,
    /// The steps.
    pub steps: Vec<Deed>,
}

/// A step of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// The application, by any number.
    pub application: usize,
    /// What it does.
    pub op: AreaOp,
}

/// What a server is to do with a request, beside changing its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Order {
    Work,
    /// Others may run first.
    Linger,
    /// The data goes on to the other server, with a request of this one's.
    Forward,
    /// It dies before it has changed anything, or when it has.
    DieFirst,
    DieLast,
    /// It tries to give away what is not its own.
    Misbehave,
}

/// What an application does. Pieces are named by any number; what makes no sense at the time is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum AreaOp {
    Alloc {
        pages: usize,
    },
    Free {
        piece: usize,
    },
    Write {
        piece: usize,
        offset: usize,
        len: usize,
        tag: u8,
    },
    Read {
        piece: usize,
        offset: usize,
        len: usize,
    },
    Request {
        piece: usize,
        service: usize,
        offset: usize,
        len: usize,
        tag: u8,
        order: Order,
        /// Without waiting, where requests are queued.
        post: bool,
    },
    /// Takes the next of its posted requests that is done.
    Collect,
    /// A child, which has nothing, touches a page of the area.
    Touch {
        page: usize,
    },
    /// It touches what it has given back a moment ago, and dies of it.
    TouchFreed {
        piece: usize,
    },
    /// It touches what is on its way to a server, and dies of it.
    TouchSent {
        piece: usize,
    },
    /// It uses and unmaps so many pages of its own: entries are replaced, and a space is flushed.
    Churn {
        pages: usize,
    },
    Yield,
}

impl Servers {
    /// Anything, on a machine where this is the turn; by reserved entries only where there can be any.
    pub(crate) fn random(rng: &mut impl Rng, steps: usize, turn: u64, reserves: bool) -> Servers {
        let methods = if reserves { By::ALL.len() as u64 } else { 2 };
        let by = By::ALL[(turn % methods) as usize];
        Servers { by, steps: (0..steps).map(|_| Deed::random(rng)).collect() }
    }

    /// Says what is wrong with one that was not made here.
    ///
    /// # Errors
    /// A sentence.
    pub fn validate(&self) -> Result<(), String> {
        for (i, deed) in self.steps.iter().enumerate() {
            let fits = |offset: usize, len: usize| offset <= MAX_OFFSET && (1..=MAX_BYTES).contains(&len);
            let ok = match deed.op {
                AreaOp::Alloc { pages } => (1..=MAX_PAGES).contains(&pages),
                AreaOp::Write { offset, len, .. }
                | AreaOp::Read { offset, len, .. }
                | AreaOp::Request { offset, len, .. } => fits(offset, len),
                AreaOp::Touch { page } => page < AREA_PAGES,
                AreaOp::Churn { pages } => (1..=64).contains(&pages),
                _ => true,
            };
            if !ok {
                return Err(format!(
                    "step {i}: {:?}, expected pieces of 1 to {MAX_PAGES} pages, 1 to {MAX_BYTES} bytes in them, an \
                     area of {AREA_PAGES} pages, and 1 to 64 pages to go over",
                    deed.op
                ));
            }
        }
        Ok(())
    }
}

impl Deed {
    fn random(rng: &mut impl Rng) -> Deed {
        let application = rng.random_range(0..APPLICATIONS);
        let piece = rng.random_range(0..PIECES);
        let (offset, len) = (rng.random_range(0..=MAX_OFFSET), rng.random_range(1..=MAX_BYTES));
        let tag = rng.random_range(1..=u8::MAX);
        let op = match rng.random_range(0..100) {
            0..12 => AreaOp::Alloc { pages: rng.random_range(1..=MAX_PAGES) },
            12..18 => AreaOp::Free { piece },
            18..32 => AreaOp::Write { piece, offset, len, tag },
            32..42 => AreaOp::Read { piece, offset, len },
            42..76 => {
                let order = match rng.random_range(0..40) {
                    0..24 => Order::Work,
                    24..28 => Order::Linger,
                    28..34 => Order::Forward,
                    34 => Order::DieFirst,
                    35 => Order::DieLast,
                    _ => Order::Misbehave,
                };
                let (service, post) = (rng.random_range(0..SERVICES), rng.random_ratio(1, 3));
                AreaOp::Request { piece, service, offset, len, tag, order, post }
            }
            76..84 => AreaOp::Collect,
            84..86 => AreaOp::Touch { page: rng.random_range(0..24) },
            86 => AreaOp::TouchFreed { piece },
            87 => AreaOp::TouchSent { piece },
            88..90 => AreaOp::Churn { pages: rng.random_range(1..48) },
            _ => AreaOp::Yield,
        };
        Deed { application, op }
    }
}
