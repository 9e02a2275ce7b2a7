//! Calls of the protocol: lists, files and their pages, roots, digests, errors and the bytes on the wire.

pub(crate) mod catalog_digests;
mod changing_reads;
mod changing_roots;
mod compression;
mod errors;
mod grpcio_wire;
mod handles;
mod paging;
mod path_leaks;
mod project_roots;
pub(crate) mod reads;
mod reflection;
mod resources;
mod resources_property;
mod roots;
mod search_links;
