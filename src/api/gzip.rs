//! Streams, packed with gzip. Each piece goes out at once and is packed by itself, so that nobody waits for what comes next
//! and a stream that rests holds no memory: what a compressor keeps is a quarter of a megabyte.

use axum::{
    body::{Body, BodyDataStream, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, header},
    middleware::Next,
    response::Response,
};
use flate2::{Compress, Compression, Crc, FlushCompress};
use futures::{StreamExt, stream};

/// Of a stream without name and time.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// A last block with nothing in it.
const LAST: [u8; 2] = [3, 0];

/// Packs answers that go on, where the caller takes that. Others are packed elsewhere.
pub async fn streams(request: Request, next: Next) -> Response {
    let is_wanted = takes_gzip(request.headers());
    let mut response = next.run(request).await;
    if !is_stream(response.headers()) {
        return response;
    }
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !is_wanted {
        return response;
    }
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.remove(header::CONTENT_LENGTH);
    response.map(packed)
}

fn is_stream(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).map_or(b"".as_slice(), HeaderValue::as_bytes);
    let is_one = [b"application/x-ndjson".as_slice(), b"text/event-stream"].contains(&media);
    is_one && !headers.contains_key(header::CONTENT_ENCODING)
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_none_or(|weight| 0.0 < weight)
    })
}

struct Packing {
    pieces: BodyDataStream,
    sum: Crc,
    begun: bool,
    over: bool,
}

fn packed(body: Body) -> Body {
    let packing = Packing { pieces: body.into_data_stream(), sum: Crc::new(), begun: false, over: false };
    Body::from_stream(stream::unfold(packing, |mut packing| async {
        let piece = packing.next().await?;
        Some((piece, packing))
    }))
}

impl Packing {
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        if self.over {
            return None;
        }
        let mut out = if self.begun { Vec::new() } else { HEAD.to_vec() };
        match self.pieces.next().await {
            Some(Ok(piece)) => {
                self.begun = true;
                self.sum.update(&piece);
                pack(&piece, &mut out);
            }
            // It breaks off, as it would unpacked.
            Some(Err(error)) => {
                self.over = true;
                return Some(Err(error));
            }
            None => {
                self.over = true;
                out.extend(LAST);
                out.extend(self.sum.sum().to_le_bytes());
                out.extend(self.sum.amount().to_le_bytes());
            }
        }
        Some(Ok(out.into()))
    }
}

/// Blocks that refer to nothing before them, up to the edge of a byte: they may stand behind any others.
fn pack(piece: &[u8], out: &mut Vec<u8>) {
    let mut compress = Compress::new(Compression::fast(), false);
    let begun = out.len();
    out.reserve(piece.len() / 4 + 64);
    loop {
        let done = usize::try_from(compress.total_in()).expect("a piece fits memory");
        let status = compress.compress_vec(&piece[done..], out, FlushCompress::Sync);
        status.expect("a compressor takes any bytes");
        // Room that is left says that all is out.
        if compress.total_in() == piece.len() as u64 && out.len() < out.capacity() {
            break;
        }
        out.reserve(4096);
    }
    debug_assert!(begun < out.len());
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::{Decompress, FlushDecompress, read::GzDecoder};
    use http_body_util::BodyExt;

    use super::*;

    fn asks(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))])
    }

    #[test]
    fn gzip_is_taken_by_who_says_so() {
        for (value, taken) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("deflate", false),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("", false),
        ] {
            assert_eq!(takes_gzip(&asks(value)), taken, "{value}");
        }
    }

    #[tokio::test]
    async fn each_piece_can_be_read_once_it_is_there_and_the_whole_is_one_file() {
        let noise: Vec<u8> =
            (0..200_000_u64).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
        let pieces: Vec<Vec<u8>> = vec![
            b"{\"type\":\"ADDED\"}\n".repeat(4000),
            b"\n".to_vec(),
            noise,
            Vec::new(),
            b"last\n".to_vec(),
        ];
        let body = Body::from_stream(stream::iter(pieces.clone().into_iter().map(Ok::<_, std::io::Error>)));
        let mut body = packed(body);
        let (mut all, mut unpack) = (Vec::new(), Decompress::new(false));
        for piece in &pieces {
            let frame = body.frame().await.expect("a piece").expect("it is whole");
            let data = frame.into_data().expect("data");
            let from = if all.is_empty() { HEAD.len() } else { 0 };
            all.extend_from_slice(&data);
            let (mut found, mut input) = (Vec::with_capacity(piece.len() + 1), &data[from..]);
            while !input.is_empty() {
                let before = unpack.total_in();
                found.reserve(1024);
                unpack.decompress_vec(input, &mut found, FlushDecompress::Sync).expect("it can be read");
                input = &input[usize::try_from(unpack.total_in() - before).expect("small")..];
            }
            assert!(found == *piece, "{} bytes of {}", found.len(), piece.len());
        }
        while let Some(frame) = body.frame().await {
            all.extend_from_slice(&frame.expect("it is whole").into_data().expect("data"));
        }
        let mut whole = Vec::new();
        GzDecoder::new(all.as_slice()).read_to_end(&mut whole).expect("one file with the right sum");
        assert!(whole == pieces.concat());
    }

    #[tokio::test]
    async fn a_stream_with_nothing_in_it_is_an_empty_file() {
        let all = packed(Body::empty()).collect().await.expect("it is whole").to_bytes();
        let mut whole = Vec::new();
        GzDecoder::new(all.as_ref()).read_to_end(&mut whole).expect("a file");
        assert!(whole.is_empty());
    }
}
