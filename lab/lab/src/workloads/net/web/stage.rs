//! Before the first request: files in memory, and the cache of mappings as a long run of the trace leaves it.
//!
//! Pages get their bytes from outside of the machine, as from a disk. Then each page that a long run leaves mapped is
//! lent once, in the order of last use, as sendfile lends it, and is not looked at: that makes its mapping, shared and
//! with a clear accessed bit. Where the CPU computes the checksums of what it sends, it has looked at all of them: so
//! one byte of each is read, through the same mapping.

use super::contents::{Contents, name};
use super::shared::Web;
use crate::kit::{CallError, named};
use pageferry_hal::{PAGE_SIZE, Prot};
use pageferry_kernel::{Errno, Fd, OpenFlags, SendMode, User};
use pageferry_model::Model;
use pageferry_vm::{Inherit, MapAddr};

impl Web {
    /// Makes the files.
    pub(super) fn make_files(&self, user: &User<Model>, files: &[u32]) -> Result<(), CallError> {
        let contents = Contents::new(self.seed);
        for &file in files {
            let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
            let fd = user.open(&name(file), flags).map_err(named("make a file"))?;
            let len = self.site.sizes[file as usize];
            if len > 0 {
                user.truncate(fd, len).map_err(named("give a file its length"))?;
                self.fill(user, fd, &contents, file, len as usize)?;
            }
            user.close(fd).map_err(named("close a file"))?;
        }
        Ok(())
    }

    fn fill(
        &self,
        user: &User<Model>,
        fd: Fd,
        contents: &Contents,
        file: u32,
        len: usize,
    ) -> Result<(), CallError> {
        let mapped = user.map_file(fd, 0, MapAddr::Anywhere, len, Prot::RW, true);
        let at = mapped.map_err(named("map a file"))?;
        for page in (0..len).step_by(PAGE_SIZE) {
            user.store(at + page, &[0]);
        }
        contents.each_piece(file, 0, len, |from, piece| {
            assert!(self.model.poke(at + from, piece), "a page that was just stored to is not mapped");
        });
        user.unmap(at, len).map_err(named("unmap a file"))
    }

    /// Makes the mappings that a long run of the trace leaves.
    pub(super) fn map_what_was_used(&self, user: &User<Model>) -> Result<(), CallError> {
        let mapped = self.site.still_mapped(self.mapping_entries);
        let mut lent = Lent(None);
        for &(file, first) in &mapped {
            self.each_mapped(user, file, first, |fd, page| lent.lend(user, fd, page))?;
        }
        lent.take_back(user)?;
        if self.sums_in_software {
            let buffer = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
            for &(file, first) in &mapped {
                self.each_mapped(user, file, first, |fd, page| {
                    user.seek(fd, page).map_err(named("seek"))?;
                    user.read(fd, buffer, 1).map_err(named("read a byte")).map(drop)
                })?;
            }
            user.unmap(buffer, PAGE_SIZE).map_err(named("unmap"))?;
        }
        Ok(())
    }

    /// Does `with` for the first byte of each page of a file, from page `first` on.
    fn each_mapped(
        &self,
        user: &User<Model>,
        file: u32,
        first: u64,
        mut with: impl FnMut(Fd, u64) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        let fd = user.open(&name(file), OpenFlags::READ).map_err(named("open a file"))?;
        let len = self.site.sizes[file as usize];
        for at in (first * PAGE_SIZE as u64..len).step_by(PAGE_SIZE) {
            with(fd, at)?;
        }
        user.close(fd).map_err(named("close a file"))
    }

    pub(super) fn remove_files(&self, user: &User<Model>, files: &[u32]) -> Result<(), CallError> {
        files.iter().try_for_each(|&file| user.unlink(&name(file)).map_err(named("unlink a file")))
    }
}

/// Pages that are lent to a pair of sockets, which are not read.
struct Lent(Option<(Fd, Fd)>);

impl Lent {
    fn lend(&mut self, user: &User<Model>, file: Fd, at: u64) -> Result<(), CallError> {
        loop {
            let fresh = self.0.is_none();
            let (to, _) = match self.0 {
                Some(pair) => pair,
                None => {
                    let pair = user.socket_pair().map_err(named("make a pair of sockets"))?;
                    user.set_nonblocking(pair.0, true).map_err(named("have a socket not wait"))?;
                    *self.0.insert(pair)
                }
            };
            match user.send_file(to, file, at, 1, SendMode::Loan) {
                // Full.
                Err(Errno::WouldBlock) if !fresh => self.take_back(user)?,
                result => return result.map_err(named("lend a page")).map(drop),
            }
        }
    }

    fn take_back(&mut self, user: &User<Model>) -> Result<(), CallError> {
        let Some((to, from)) = self.0.take() else { return Ok(()) };
        user.close(from).map_err(named("close"))?;
        user.close(to).map_err(named("close"))
    }
}
