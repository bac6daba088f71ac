//! The plain model that the VM system is compared with: a process is a map from page numbers to bytes, and fork copies
//! them all. No sharing that is not asked for, no laziness, nothing to get wrong.
//!
//! (The copies share their memory on the host until one is written; that is `Rc`'s business, not the model's.)

use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_vm::{Inherit, VmError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// One page of bytes.
pub(crate) type Bytes = Rc<[u8; PAGE_SIZE]>;

/// A page of a file: every mapping of it without copy-on-write has this one.
pub(crate) type FilePage = Rc<RefCell<Bytes>>;

/// Where a page's bytes are.
#[derive(Clone)]
enum Content {
    /// In memory of its own.
    Own(Bytes),
    /// In the file's page, until it is written.
    Private(FilePage),
    /// In the file's page, for good.
    File(FilePage),
}

/// A page of a process; what several processes share, they share by reference.
#[derive(Clone)]
pub(crate) struct Page {
    shared: Rc<RefCell<Content>>,
    /// The file below, if any.
    below: Option<FilePage>,
    pub(crate) prot: Prot,
    pub(crate) inherit: Inherit,
}

thread_local! {
    static ZERO: Bytes = Rc::new([0; PAGE_SIZE]);
}

impl Page {
    fn new(content: Content, below: Option<FilePage>, prot: Prot, inherit: Inherit) -> Page {
        Page { shared: Rc::new(RefCell::new(content)), below, prot, inherit }
    }

    pub(crate) fn zero(prot: Prot, inherit: Inherit) -> Page {
        Page::new(Content::Own(ZERO.with(Rc::clone)), None, prot, inherit)
    }

    pub(crate) fn of_file(file: &FilePage, private: bool, prot: Prot, inherit: Inherit) -> Page {
        let content = if private { Content::Private(file.clone()) } else { Content::File(file.clone()) };
        Page::new(content, Some(file.clone()), prot, inherit)
    }

    pub(crate) fn bytes(&self) -> Bytes {
        match &*self.shared.borrow() {
            Content::Own(bytes) => bytes.clone(),
            Content::Private(file) | Content::File(file) => file.borrow().clone(),
        }
    }

    /// Gives the page bytes of its own, as a write would.
    pub(crate) fn promote(&self) {
        let mut content = self.shared.borrow_mut();
        if let Content::Private(file) = &*content {
            let copy = file.borrow().clone();
            *content = Content::Own(copy);
        }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.promote();
        let range = offset..offset + bytes.len();
        match &mut *self.shared.borrow_mut() {
            Content::Own(own) => Rc::make_mut(own)[range].copy_from_slice(bytes),
            Content::File(file) => Rc::make_mut(&mut file.borrow_mut())[range].copy_from_slice(bytes),
            Content::Private(_) => unreachable!("promoted above"),
        }
    }

    /// What a child gets.
    fn inherited(&self) -> Option<Page> {
        match self.inherit {
            Inherit::None => None,
            Inherit::Share => Some(self.clone()),
            Inherit::Copy => Some(self.copied()),
        }
    }

    /// The page as a receiver of a copy sees it.
    pub(crate) fn copied(&self) -> Page {
        let content = match &*self.shared.borrow() {
            Content::File(file) => Content::Private(file.clone()),
            other => other.clone(),
        };
        Page::new(content, self.below.clone(), self.prot, self.inherit)
    }

    /// True for memory of its own (perhaps shared), false for a file that is written.
    pub(crate) fn is_anonymous(&self) -> bool {
        !matches!(&*self.shared.borrow(), Content::File(_))
    }

    /// True when what others write may be seen here, or what is written here by others.
    pub(crate) fn is_shared(&self) -> bool {
        Rc::strong_count(&self.shared) > 1 || !matches!(&*self.shared.borrow(), Content::Own(_))
    }

    /// Other bytes take the place of the page's.
    pub(crate) fn replace(&self, bytes: &Bytes) {
        assert!(self.is_anonymous(), "a file's page is not replaced");
        *self.shared.borrow_mut() = Content::Own(bytes.clone());
    }

    /// True when the file lies below, whether it is seen or not.
    pub(crate) fn is_over_file(&self) -> bool {
        self.below.is_some()
    }

    /// What pushing the page down should come to: how many pages go, and whether it may be refused, as others have the
    /// same bytes and may have the same page.
    pub(crate) fn goes_down(&self) -> Option<(usize, bool)> {
        self.below.as_ref()?;
        Some(match &*self.shared.borrow() {
            Content::Own(bytes) => (1, Rc::strong_count(bytes) > 1),
            Content::Private(_) | Content::File(_) => (0, false),
        })
    }

    /// What the page has of its own becomes the file's; it keeps it, or sees the file from now on.
    pub(crate) fn push_down(&self, keep: bool) {
        let (Some(file), mut content) = (&self.below, self.shared.borrow_mut()) else { return };
        if let Content::Own(bytes) = &*content {
            *file.borrow_mut() = bytes.clone();
            if !keep {
                *content = Content::Private(file.clone());
            }
        }
    }

    /// Uncovers what is below.
    pub(crate) fn flush(&self) {
        if self.is_anonymous() {
            *self.shared.borrow_mut() = match &self.below {
                Some(file) => Content::Private(file.clone()),
                None => Content::Own(ZERO.with(Rc::clone)),
            };
        }
    }
}

/// A process: pages by number.
#[derive(Clone, Default)]
pub(crate) struct Process {
    pub(crate) pages: BTreeMap<u64, Page>,
}

impl Process {
    pub(crate) fn fork(&self) -> Process {
        Process { pages: self.pages.iter().filter_map(|(&n, p)| Some((n, p.inherited()?))).collect() }
    }

    /// Why an access to page `n` is refused, if it is; `at` is for the error.
    pub(crate) fn refusal(&self, n: u64, write: bool, at: Va) -> Option<VmError> {
        let needed = if write { Prot::WRITE } else { Prot::READ };
        match self.pages.get(&n) {
            None => Some(VmError::Fault(at)),
            Some(page) if !page.prot.contains(needed) => Some(VmError::Access),
            Some(_) => None,
        }
    }

    pub(crate) fn is_free(&self, pages: Range<u64>) -> bool {
        self.pages.range(pages).next().is_none()
    }

    pub(crate) fn is_mapped(&self, pages: Range<u64>) -> bool {
        self.pages.range(pages.clone()).count() as u64 == pages.end - pages.start
    }

    pub(crate) fn shares(&self, pages: Range<u64>) -> bool {
        self.pages.range(pages).any(|(_, p)| p.is_shared())
    }
}
