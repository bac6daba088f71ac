//! What is read from the site: files and parts of them, directories, and what has not changed.

use super::conditional::{Verdict, part_is_wanted, verdict};
use super::connection::Connection;
use super::http::Server;
use super::range::{Part, part};
use super::request::Request;
use super::response::{Length, kind, listing};
use super::site::{Page, Place};
use super::target::written;
use super::workers::WaitError;
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Errno, Fd, OpenFlags};
use std::ops::Range;
use std::time::SystemTime;

/// Bytes of a file that one call sends.
const PIECE_BYTES: u64 = 64 * PAGE_SIZE as u64;

impl Server {
    /// Answers a `GET` or a `HEAD` for a path, which has a slash behind it or not; whether the connection is kept.
    pub(super) fn read(
        &self,
        client: &mut Connection<'_>,
        request: &Request,
        (path, has_slash): (&[u8], bool),
        keep: bool,
    ) -> Result<bool, WaitError> {
        loop {
            let found = self.site.borrow().find(path, has_slash);
            match found {
                None => return self.refuse_to(client, request, 404, keep),
                Some(Place::Elsewhere) => {
                    let fields = format!("Location: /{}/\r\n", written(path));
                    client.begin_answer(301, &fields, Length::Bytes(0), keep)?;
                    client.end_answer();
                    return Ok(keep);
                }
                Some(Place::Directory(entries)) => {
                    let page = listing(path, &entries);
                    let length = Length::Bytes(page.len() as u64);
                    client.begin_answer(200, "Content-Type: text/html; charset=utf-8\r\n", length, keep)?;
                    if !request.is_head() {
                        client.say_body(page.as_bytes())?;
                    }
                    client.end_answer();
                    return Ok(keep);
                }
                Some(Place::Page(path, page)) => {
                    match client.call(|| client.user.open(&page.file, OpenFlags::READ)) {
                        Ok(file) if self.site.borrow().page(&path).is_none_or(|now| now.tag != page.tag) => {
                            // The file has gone meanwhile, and another may have its number.
                            client.surely(|| client.user.close(file))?;
                        }
                        Ok(file) => {
                            let answered = self.answer_with(client, request, (&path, &page, file), keep);
                            client.surely(|| client.user.close(file))?;
                            return answered;
                        }
                        // An upload has taken its place meanwhile.
                        Err(WaitError::Failed(Errno::NoFile)) => {}
                        Err(gone) => return Err(gone),
                    }
                }
            }
        }
    }

    /// Answers with a file, a part of it, or that the client has it.
    fn answer_with(
        &self,
        client: &mut Connection<'_>,
        request: &Request,
        (path, page, file): (&[u8], &Page, Fd),
        keep: bool,
    ) -> Result<bool, WaitError> {
        let (fields, there) = (&request.fields, page.validators());
        let modified = httpdate::fmt_http_date(there.modified);
        let validators = format!("ETag: {}\r\nLast-Modified: {modified}\r\n", there.tag);
        match verdict(fields, true, Some(there)) {
            Verdict::Met => {}
            Verdict::NotModified => {
                client.begin_answer(304, &validators, Length::Nothing, keep)?;
                client.end_answer();
                return Ok(keep);
            }
            Verdict::Failed => return self.refuse_to(client, request, 412, keep),
        }
        let len = page.len_bytes;
        // Ranges are of `GET` alone (RFC 9110, 14.2).
        let is_part = request.method == "GET" && part_is_wanted(fields, there, SystemTime::now());
        let (status, bytes, range) = match part(fields, len) {
            Part::Bytes(bytes) if is_part => {
                let range = format!("Content-Range: bytes {}-{}/{len}\r\n", bytes.start, bytes.end - 1);
                (206, bytes, range)
            }
            Part::Unsatisfiable if is_part => {
                let fields = format!("Content-Range: bytes */{len}\r\n");
                client.begin_answer(416, &fields, Length::Bytes(0), keep)?;
                client.end_answer();
                return Ok(keep);
            }
            _ => (200, 0..len, String::new()),
        };
        let fields = format!("Content-Type: {}\r\nAccept-Ranges: bytes\r\n{validators}{range}", kind(path));
        client.begin_answer(status, &fields, Length::Bytes(bytes.end - bytes.start), keep)?;
        if !request.is_head() {
            self.send(client, file, bytes)?;
        }
        client.end_answer();
        Ok(keep)
    }

    fn send(&self, client: &mut Connection<'_>, file: Fd, bytes: Range<u64>) -> Result<(), WaitError> {
        let mut at = bytes.start;
        while at < bytes.end {
            let want = (bytes.end - at).min(PIECE_BYTES) as usize;
            let sent = client.send_file(file, at, want, self.service.send)?;
            if sent == 0 {
                // Shorter than was promised: the client must not take it for the whole.
                return Err(WaitError::Failed(Errno::Io));
            }
            at += sent as u64;
            self.state.borrow_mut().file_bytes += sent as u64;
        }
        Ok(())
    }
}
