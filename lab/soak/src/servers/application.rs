//! An application, and the bytes that each of its pieces must have.

use super::steps::{AreaOp, MAX_PAGES, Order, PIECES};
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, RequestId, User, Wait};
use pageferry_model::Model;
use pageferry_vm::Inherit;

type U = User<Model>;

/// Bytes of a request: what is to be done, by how much, and with what.
pub(super) const ASKED_BYTES: usize = 12;
/// How often a request may come to a server: by its maker, and by the one that it goes on from.
const MAX_VISITS: u8 = 2;

/// A request as it is written in its control piece.
#[derive(Clone, Copy)]
pub(super) struct AppRequest {
    pub(super) order: Order,
    pub(super) tag: u8,
    pub(super) offset: usize,
    pub(super) len: usize,
}

const ORDERS: [Order; 6] =
    [Order::Work, Order::Linger, Order::Forward, Order::DieFirst, Order::DieLast, Order::Misbehave];

impl AppRequest {
    pub(super) fn bytes(self) -> [u8; ASKED_BYTES] {
        let order = ORDERS.iter().position(|o| *o == self.order).expect("it is one of them") as u8;
        let mut bytes = [0; ASKED_BYTES];
        bytes[..2].copy_from_slice(&[order, self.tag]);
        bytes[4..8].copy_from_slice(&(self.offset as u32).to_le_bytes());
        bytes[8..].copy_from_slice(&(self.len as u32).to_le_bytes());
        bytes
    }

    pub(super) fn of(bytes: [u8; ASKED_BYTES]) -> AppRequest {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four")) as usize;
        AppRequest { order: ORDERS[bytes[0] as usize], tag: bytes[1], offset: number(4), len: number(8) }
    }

    /// How often it comes to a server when all goes well.
    fn visits(self) -> u8 {
        if self.order == Order::Forward { MAX_VISITS } else { 1 }
    }
}

struct Piece {
    at: Va,
    bytes: Vec<u8>,
}

/// A request whose pieces are not back.
struct PendingRequest {
    /// `None` when the call that made it has not said: its answer found no entry.
    id: Option<RequestId>,
    control: Va,
    piece: Piece,
    asked: AppRequest,
}

/// An application: its pieces, its requests that are out, and what each must have.
pub(super) struct Application<'a> {
    u: &'a U,
    services: u32,
    pieces: Vec<Piece>,
    sent: Vec<PendingRequest>,
}

impl<'a> Application<'a> {
    pub(super) fn new(u: &'a U, services: usize) -> Application<'a> {
        Application { u, services: services as u32, pieces: Vec::new(), sent: Vec::new() }
    }

    fn load(&self, at: Va, len: usize) -> Vec<u8> {
        let mut found = vec![0xee; len];
        self.u.load(at, &mut found);
        found
    }

    /// Takes a piece, by any number.
    fn take(&mut self, which: usize) -> Option<Piece> {
        let n = self.pieces.len();
        (n > 0).then(|| self.pieces.remove(which % n))
    }

    /// Makes a step; false when it has died of it.
    pub(super) fn step(&mut self, op: AreaOp) -> bool {
        match op {
            AreaOp::Alloc { pages } => self.alloc(pages.min(MAX_PAGES)),
            AreaOp::Free { piece } => {
                if let Some(piece) = self.take(piece) {
                    self.give_back(&piece);
                }
            }
            AreaOp::Write { piece, offset, len, tag } => {
                if let Some(mut piece) = self.take(piece) {
                    let offset = offset % (piece.bytes.len() - len);
                    let bytes = vec![tag; len];
                    self.u.store(piece.at + offset, &bytes);
                    piece.bytes[offset..offset + len].copy_from_slice(&bytes);
                    self.pieces.push(piece);
                }
            }
            AreaOp::Read { piece, offset, len } => {
                if let Some(piece) = self.take(piece) {
                    let offset = offset % (piece.bytes.len() - len);
                    let found = self.load(piece.at + offset, len);
                    assert!(
                        found == piece.bytes[offset..offset + len],
                        "a piece has other bytes than it should"
                    );
                    self.pieces.push(piece);
                }
            }
            AreaOp::Request { piece, service, offset, len, tag, order, post } => {
                if let Some(piece) = self.take(piece) {
                    let offset = offset % (piece.bytes.len() - len);
                    self.request(
                        piece,
                        service as u32 % self.services,
                        AppRequest { order, tag, offset, len },
                        post,
                    );
                }
            }
            AreaOp::Collect => _ = self.collect(Wait::No),
            AreaOp::Touch { page } => self.let_a_child_touch(page),
            AreaOp::TouchFreed { piece } => {
                let Some(piece) = self.take(piece) else { return true };
                self.give_back(&piece);
                return self.touch(piece.at);
            }
            AreaOp::TouchSent { piece } => {
                let n = self.sent.len();
                if n > 0 {
                    return self.touch(self.sent[piece % n].piece.at);
                }
            }
            AreaOp::Churn { pages } => self.churn(pages),
            AreaOp::Yield => _ = self.u.yield_now(),
        }
        assert!(!self.u.is_killed(), "{op:?} was an exception");
        true
    }

    /// Touches what it must not: that is its end.
    fn touch(&self, at: Va) -> bool {
        assert_eq!(self.load(at, 8), [0; 8], "never a byte of what is not attached");
        assert!(self.u.is_killed(), "the touch of what is not attached is an exception");
        false
    }

    fn alloc(&mut self, pages: usize) {
        if self.pieces.len() + self.sent.len() >= PIECES {
            return;
        }
        match self.u.ica_alloc(pages, Wait::No) {
            Ok(at) => {
                let bytes = vec![0; pages * PAGE_SIZE];
                let last = bytes.len() - 16;
                assert_eq!(
                    (self.load(at, 16), self.load(at + last, 16)),
                    (vec![0; 16], vec![0; 16]),
                    "clear"
                );
                self.pieces.push(Piece { at, bytes });
            }
            Err(Errno::WouldBlock | Errno::NoMemory) => {}
            Err(error) => panic!("a piece is refused: {error}"),
        }
    }

    /// All of it must be as it should.
    fn give_back(&self, piece: &Piece) {
        assert!(
            self.load(piece.at, piece.bytes.len()) == piece.bytes,
            "a piece has other bytes than it should"
        );
        assert_eq!(self.u.ica_free(piece.at), Ok(()), "its own piece");
    }

    fn request(&mut self, piece: Piece, service: u32, asked: AppRequest, post: bool) {
        let u = self.u;
        let control = match u.ica_alloc(1, Wait::No) {
            Ok(control) => control,
            Err(Errno::WouldBlock | Errno::NoMemory) => return self.pieces.push(piece),
            Err(error) => panic!("a piece is refused: {error}"),
        };
        u.store(control, &asked.bytes());
        let mut sent = PendingRequest { id: None, control, piece, asked };
        let outcome = if post && !u.ispc_crosses() {
            match u.ispc_post(service, control, Some(sent.piece.at)) {
                Ok(id) => {
                    assert!(u.ispc_return(id).is_err(), "only its server may answer");
                    sent.id = Some(id);
                    return self.sent.push(sent);
                }
                Err(error) => Err(error),
            }
        } else if self.sent.iter().any(|other| other.id.is_none()) {
            // One at a time whose number is not known.
            Err(Errno::ConnectionRefused)
        } else {
            u.ispc_request(service, control, Some(sent.piece.at), Wait::No)
        };
        match outcome {
            // Its answer is there, but no entry for what it brings.
            Err(Errno::WouldBlock) => self.sent.push(sent),
            outcome => self.back(sent, outcome),
        }
    }

    /// Takes an answer, if there is one; false when there is none to wait for.
    pub(super) fn collect(&mut self, wait: Wait) -> bool {
        match self.u.ispc_result(wait) {
            Ok(done) => {
                let known = self.sent.iter().position(|sent| sent.id == Some(done.id));
                let at = known.or_else(|| self.sent.iter().position(|sent| sent.id.is_none()));
                let sent = self.sent.remove(at.expect("an answer to a request that was not made"));
                self.back(sent, done.outcome);
                true
            }
            Err(Errno::WouldBlock) => true,
            Err(Errno::NoChild) => {
                assert!(self.sent.is_empty(), "{} requests are lost", self.sent.len());
                false
            }
            Err(error) => panic!("an answer is refused: {error}"),
        }
    }

    /// The pieces of a request are back: they are as its outcome says.
    fn back(&mut self, sent: PendingRequest, outcome: Result<(), Errno>) {
        let PendingRequest { control, mut piece, asked, .. } = sent;
        let range = asked.offset..asked.offset + asked.len;
        let found = self.load(piece.at + asked.offset, asked.len);
        let after = |visits: u8| -> Vec<u8> {
            let more = asked.tag.wrapping_mul(visits);
            piece.bytes[range.clone()].iter().map(|b| b.wrapping_add(more)).collect()
        };
        let right = match outcome {
            Ok(()) => found == after(asked.visits()) || asked.order == Order::Forward && found == after(1),
            Err(Errno::ConnectionRefused) => found == after(0),
            Err(Errno::ConnectionReset) => (0..=asked.visits()).any(|visits| found == after(visits)),
            Err(error) => panic!("a request is refused: {error}"),
        };
        assert!(
            right,
            "{:?} has ended with {outcome:?}, and its bytes are not what comes of that",
            asked.order
        );
        piece.bytes[range].copy_from_slice(&found);
        self.pieces.push(piece);
        assert_eq!(self.u.ica_free(control), Ok(()), "its own piece");
    }

    fn let_a_child_touch(&self, page: usize) {
        let area = self.u.kernel().vm().pmaps().area_range().expect("this kernel has an area");
        let at = area.start() + page * PAGE_SIZE;
        let toucher = move |u: &U| {
            let mut found = [0xee; 16];
            u.load(at, &mut found);
            assert_eq!(found, [0; 16], "never a byte of another's");
            assert!(u.is_killed(), "the touch of another's is an exception");
        };
        if self.u.fork("toucher", Box::new(toucher)).is_ok() {
            self.u.wait().expect("it has a child");
        }
    }

    fn churn(&self, pages: usize) {
        let Ok(at) = self.u.map(pages * PAGE_SIZE, Prot::RW, Inherit::Copy) else { return };
        for page in 0..pages {
            self.u.store(at + page * PAGE_SIZE, &[page as u8 + 1]);
        }
        for page in 0..pages {
            assert_eq!(self.load(at + page * PAGE_SIZE, 1), [page as u8 + 1], "its own memory");
        }
        assert_eq!(self.u.unmap(at, pages * PAGE_SIZE), Ok(()));
    }

    /// Takes what is still to come, and gives everything back.
    pub(super) fn end(mut self) {
        while self.collect(Wait::No) {
            // Room for what comes.
            if let Some(piece) = self.take(0) {
                self.give_back(&piece);
            }
            _ = self.u.yield_now();
        }
        for piece in core::mem::take(&mut self.pieces) {
            self.give_back(&piece);
        }
    }
}
