//! The slots of the index file that is being written, in memory by pages of 4 KiB: pages are read when first needed
//! and written when the file is flushed, so that adding a key costs no system call.
//!
//! Not here: chains (`file`).

use std::io;

use super::layout::{Geometry, SLOT_LEN};
use crate::io::DiskFile;

/// Slots of a page.
const PAGE: usize = 1024;

#[derive(Debug)]
struct Page {
    slots: Box<[u32; PAGE]>,
    dirty: bool,
}

/// Slots with their changes.
#[derive(Debug)]
pub(super) struct Slots {
    geometry: Geometry,
    pages: Vec<Option<Page>>,
}

impl Slots {
    pub(super) fn new(geometry: Geometry) -> Self {
        let pages = (geometry.slots as usize).div_ceil(PAGE);
        Self {
            geometry,
            pages: (0..pages).map(|_| None).collect(),
        }
    }

    /// A slot's content, without keeping its page.
    pub(super) fn get(&self, slot: u32, file: &dyn DiskFile) -> io::Result<u32> {
        if let Some(Some(page)) = self.pages.get(slot as usize / PAGE) {
            return Ok(page.slots[slot as usize % PAGE]);
        }
        let mut bytes = [0; SLOT_LEN as usize];
        file.read_at(&mut bytes, self.geometry.slot_at(slot))?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// A slot to change.
    pub(super) fn get_mut(&mut self, slot: u32, file: &dyn DiskFile) -> io::Result<&mut u32> {
        let (number, at) = (slot as usize / PAGE, slot as usize % PAGE);
        let place = self
            .pages
            .get_mut(number)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let page = match place {
            Some(page) => page,
            None => place.insert(read_page(
                file,
                self.geometry.slot_at((number * PAGE) as u32),
            )?),
        };
        page.dirty = true;
        Ok(&mut page.slots[at])
    }

    /// Takes all slots as empty, whatever the file says.
    pub(super) fn reset(&mut self) {
        for page in &mut self.pages {
            *page = Some(Page {
                slots: Box::new([0; PAGE]),
                dirty: true,
            });
        }
    }

    /// Writes the changed pages, neighbours together.
    pub(super) fn write_out(&mut self, file: &dyn DiskFile) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut first = 0;
        for number in 0..=self.pages.len() {
            match self
                .pages
                .get(number)
                .and_then(Option::as_ref)
                .filter(|p| p.dirty)
            {
                Some(page) => {
                    if bytes.is_empty() {
                        first = number;
                    }
                    // The last page may reach beyond the slots.
                    let used = (self.geometry.slots as usize - number * PAGE).min(PAGE);
                    bytes.extend(page.slots[..used].iter().flat_map(|s| s.to_be_bytes()));
                }
                None if !bytes.is_empty() => {
                    file.write_all_at(&bytes, self.geometry.slot_at((first * PAGE) as u32))?;
                    bytes.clear();
                }
                None => {}
            }
        }
        for page in self.pages.iter_mut().flatten() {
            page.dirty = false;
        }
        Ok(())
    }

    /// Gives back the memory of pages without changes.
    pub(super) fn forget_clean(&mut self) {
        for page in &mut self.pages {
            if page.as_ref().is_some_and(|p| !p.dirty) {
                *page = None;
            }
        }
    }
}

fn read_page(file: &dyn DiskFile, at: u64) -> io::Result<Page> {
    let mut bytes = [0; PAGE * SLOT_LEN as usize];
    file.read_at(&mut bytes, at)?;
    let mut slots = Box::new([0; PAGE]);
    for (slot, bytes) in slots.iter_mut().zip(bytes.as_chunks().0) {
        *slot = u32::from_be_bytes(*bytes);
    }
    Ok(Page {
        slots,
        dirty: false,
    })
}
