//! Bodies as they arrive: in pieces of any size, perhaps gzipped, never trusted to end.

use std::io::Write;

use flate2::write::GzDecoder;
use http::{Response, header::CONTENT_ENCODING};
use kube::client::Body;

use crate::client::{ApiError, RetryClass};

/// Hands on the plain bytes of a body, up to a cap.
pub(super) struct Plain {
    gzip: Option<GzDecoder<Vec<u8>>>,
    left: usize,
}

impl Plain {
    pub(super) fn new(answer: &Response<Body>, cap: usize) -> Self {
        let gzipped = answer.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
        Self { gzip: gzipped.then(|| GzDecoder::new(Vec::new())), left: cap }
    }

    /// A few kilobytes may unpack to gigabytes, so they are handed on as they unpack.
    pub(super) fn feed(
        &mut self,
        mut data: &[u8],
        on: &mut impl FnMut(&[u8]) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let Some(gzip) = &mut self.gzip else { return take(&mut self.left, data, on) };
        let broken = |_| invalid("the answer is not valid gzip");
        while !data.is_empty() {
            let read = gzip.write(data).map_err(broken)?;
            take(&mut self.left, gzip.get_ref(), on)?;
            gzip.get_mut().clear();
            if read == 0 {
                return Err(invalid("the answer goes on after its end"));
            }
            data = &data[read..];
        }
        gzip.flush().map_err(broken)?;
        take(&mut self.left, gzip.get_ref(), on)?;
        gzip.get_mut().clear();
        Ok(())
    }

    pub(super) fn finish(self, on: &mut impl FnMut(&[u8]) -> Result<(), ApiError>) -> Result<(), ApiError> {
        let Some(gzip) = self.gzip else { return Ok(()) };
        let rest = gzip.finish().map_err(|_| cut_short())?;
        let mut left = self.left;
        take(&mut left, &rest, on)
    }
}

fn take(
    left: &mut usize,
    data: &[u8],
    on: &mut impl FnMut(&[u8]) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    *left = left.checked_sub(data.len()).ok_or_else(|| invalid("the answer is larger than allowed"))?;
    if data.is_empty() { Ok(()) } else { on(data) }
}

pub(super) fn invalid(message: &str) -> ApiError {
    ApiError::new(RetryClass::Invalid, message)
}

pub(super) fn cut_short() -> ApiError {
    ApiError::new(RetryClass::Unreachable, "the answer was cut short")
}
