//! Links of Markdown: what a page refers to is there, and so is the heading that it names. So is a file of Rust that it
//! names as code, by its path from the root.
//!
//! Pages are all files of Markdown here. Links that leave the repository (`https:`) are not followed; those to its
//! files by their public address are looked up here. The headings' names are made as mdBook and GitHub make them. A
//! chapter of the book must be in its `SUMMARY.md`, and what that lists must be there.

use crate::{Fault, Tree};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};

/// Where the book's chapters are.
pub const BOOK: &str = "book/src";

/// This repository as the book links to it.
const HERE: [&str; 2] = [
    "https://github.com/pageferry/pageferry/blob/main/",
    "https://github.com/pageferry/pageferry/tree/main/",
];

/// Links that lead nowhere, and chapters that nothing leads to.
pub fn check(tree: &Tree) -> Vec<Fault> {
    let pages: BTreeMap<&str, Page> =
        tree.ending(".md").map(|(path, text)| (path, Page::read(path, text))).collect();
    let mut faults = Vec::new();
    for (path, page) in &pages {
        for (line, target) in &page.links {
            if let Some(what) = wrong(tree, &pages, path, target) {
                faults.push(Fault::new(path, *line, what));
            }
        }
    }
    let tops: BTreeSet<&str> =
        tree.files().into_iter().filter_map(|path| Some(path.split_once('/')?.0)).collect();
    for (path, page) in &pages {
        let of_the_tree = page
            .files
            .iter()
            .filter(|(_, file)| file.split('/').next().is_some_and(|top| tops.contains(top)));
        for (line, file) in of_the_tree.filter(|(_, file)| !tree.has(file)) {
            faults.push(Fault::new(path, *line, format!("`{file}` is named, and is not there")));
        }
    }
    let summary = format!("{BOOK}/SUMMARY.md");
    if let Some(page) = pages.get(summary.as_str()) {
        let listed: BTreeSet<String> = page
            .links
            .iter()
            .filter_map(|(_, target)| resolve(&summary, target.split('#').next()?))
            .collect();
        let chapters = pages.keys().filter(|path| path.starts_with(BOOK) && **path != summary);
        let unlisted = chapters.filter(|path| !listed.contains(**path));
        faults.extend(
            unlisted.map(|path| Fault::new(path, 0, format!("a chapter that {summary} does not list"))),
        );
    }
    faults
}

fn wrong(tree: &Tree, pages: &BTreeMap<&str, Page>, from: &str, target: &str) -> Option<String> {
    if let Some(path) = HERE.iter().find_map(|here| target.strip_prefix(here)) {
        let path = path.split('#').next().unwrap_or_default();
        return (!tree.has(path))
            .then(|| format!("a link to `{path}` of this repository, which is not there"));
    }
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    if let Some(path) = target.strip_prefix(INCLUDED) {
        return tree.text(path).is_none().then(|| format!("`{path}` is put in here, and is not there"));
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { from.to_owned() } else { resolve(from, file).unwrap_or_default() };
    if path.is_empty() || !tree.has(&path) {
        return Some(format!("a link to `{target}`, which is not there"));
    }
    if from.starts_with(BOOK) && !path.starts_with(BOOK) {
        return Some(format!("a link to `{target}` leaves the book: expected the address in the repository"));
    }
    let known =
        heading.is_empty() || pages.get(path.as_str()).is_none_or(|page| page.headings.contains(heading));
    (!known).then(|| format!("a link to `{target}`: no heading there has that name"))
}

/// The path of a relative link, from the root; nothing where it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// What a page links to and which files of Rust it names, by line, and the names of its headings.
#[derive(Default)]
struct Page {
    links: Vec<(usize, String)>,
    files: Vec<(usize, String)>,
    headings: BTreeSet<String>,
}

impl Page {
    fn read(path: &str, text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<(HeadingLevel, String)> = None;
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_HEADING_ATTRIBUTES;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            if let Event::Code(code) = &event
                && code.ends_with(".rs")
                && code.contains('/')
                && !code.contains(['*', ' ', '{'])
            {
                page.files.push((text[..range.start].matches('\n').count() + 1, code.to_string()));
            }
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = text[..range.start].matches('\n').count() + 1;
                    page.links.push((line, dest_url.to_string()));
                }
                Event::Start(Tag::Heading { level, .. }) => heading = Some((level, String::new())),
                Event::Text(more) | Event::Code(more) => {
                    if let Some((_, words)) = &mut heading {
                        words.push_str(&more);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    if let Some((_, words)) = heading.take() {
                        page.name(&slug(&words));
                    }
                }
                _ => {}
            }
        }
        // `{{#include FILE}}`, which mdBook puts in.
        for (number, line) in (1..).zip(text.lines()).filter(|_| path.starts_with(BOOK)) {
            let included = line.split_once("{{#").and_then(|(_, rest)| rest.split_once(' '));
            if let Some((_, rest)) = included
                && let Some((file, _)) = rest.split_once("}}")
            {
                let file = file.trim().split(':').next().unwrap_or_default();
                page.includes(path, number, file);
            }
        }
        page
    }

    /// A file that is put in is no link: it may be anywhere in the repository.
    fn includes(&mut self, path: &str, number: usize, file: &str) {
        if let Some(found) = resolve(path, file) {
            self.links.push((number, format!("{INCLUDED}{found}")));
        }
    }

    /// A heading's name; of several alike, the later ones are numbered.
    fn name(&mut self, name: &str) {
        let mut numbered = name.to_owned();
        let mut number = 0;
        while !self.headings.insert(numbered.clone()) {
            number += 1;
            numbered = format!("{name}-{number}");
        }
    }
}

/// Marks what is put in, until it is looked up.
const INCLUDED: &str = "included:";

fn slug(words: &str) -> String {
    let kept = words.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}
