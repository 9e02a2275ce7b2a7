//! Read of one listed file of a package.

use super::{PackageLocation, PullError};
use crate::Client;
use caproot_core::proto::caproot::v1::ReadResourceRequest;
use caproot_core::wire::FileChecksum;
use std::io;

/// Requested size of a page.
const PAGE_BYTES: i64 = 1 << 20;
/// Minimum average size of the pages of a file, so that a daemon cannot send tiny pages without end.
const MIN_PAGE_BYTES: u64 = 4 << 10;

impl PackageLocation<'_> {
    /// Returns a request for a page of a file.
    pub(super) fn page_request(self, name: &str, max_bytes: i64) -> ReadResourceRequest {
        ReadResourceRequest {
            root: Some(self.root.clone()),
            package: self.package.to_owned(),
            resource: format!("{}/{name}", self.package),
            max_bytes,
            ..ReadResourceRequest::default()
        }
    }

    /// Reads one file, in the version that was listed. `take_page` receives the pages.
    pub(super) async fn read_file(
        self,
        client: &Client,
        name: &str,
        file: &FileChecksum,
        take_page: &mut (dyn FnMut(&[u8]) -> Result<(), PullError> + Send),
    ) -> Result<(), PullError> {
        let mut bytes = 0_u64;
        let mut pages = 0_u64;
        // Error of the last page, which ends the read.
        let mut failure = None;
        let response = client
            .clone()
            .read_resource(&self.page_request(name, PAGE_BYTES), 0, &mut |page| {
                bytes += page.len() as u64;
                pages += 1;
                let taken = if bytes > file.bytes {
                    Err(PullError::KeepsChanging)
                } else if pages > 2 + file.bytes / MIN_PAGE_BYTES {
                    Err(PullError::invalid(name, "has too many pages"))
                } else {
                    take_page(page)
                };
                taken.map_err(|error| {
                    failure = Some(error);
                    io::ErrorKind::Other.into()
                })
            })
            .await;

        // The client only knows that the output failed, so the reason comes first.
        if let Some(failure) = failure {
            return Err(failure);
        }
        // The client compared the bytes with the digest of the response.
        let response = response.map_err(PullError::after_list)?;
        if response.digest != file.digest.to_string() {
            return Err(PullError::KeepsChanging);
        }
        if bytes == file.bytes {
            Ok(())
        } else {
            Err(PullError::invalid(name, "has another size"))
        }
    }
}
