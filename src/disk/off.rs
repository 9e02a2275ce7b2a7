//! Where the operator's rules for switched-off skills hold: below published roots, wherever these are
//! now.

use super::allowed::Ground;
use crate::domain::switched_off::Places;
use crate::domain::{Published, SwitchedOff};

/// The rules by place, below those of the published roots that are there.
pub(super) fn places<'a>(
    ground: &Ground,
    published: &[Published],
    rules: &'a SwitchedOff,
) -> Places<'a> {
    rules.places(|id| {
        let root = published.iter().find(|root| root.id == *id)?;
        ground.resolve(&root.path).ok()
    })
}
