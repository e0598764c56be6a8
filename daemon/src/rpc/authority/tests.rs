//! Bytes of clients, cut at every position, and the bytes that the server receives.

use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const DATA: u8 = 0;

struct Client {
    encoder: Encoder<'static>,
    sent: Vec<u8>,
}

impl Client {
    fn new() -> Self {
        let mut client = Self {
            encoder: Encoder::new(),
            sent: GREETING.to_vec(),
        };
        client.frame(SETTINGS, 0, 0, &[]);
        client
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u8, body: &[u8]) {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        self.sent.extend_from_slice(&length[1..]);
        self.sent.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
        self.sent.extend_from_slice(body);
    }

    fn block(&mut self, authority: &[u8], path: &[u8]) -> Vec<u8> {
        let fields: [(&[u8], &[u8]); 4] = [
            (b":method", b"POST"),
            (b":authority", authority),
            (b":path", path),
            (b"te", b"trailers"),
        ];
        self.encoder.encode(fields)
    }

    fn asks(&mut self, stream: u8, authority: &[u8], path: &[u8]) {
        let block = self.block(authority, path);
        self.frame(HEADERS, END_HEADERS, stream, &block);
        self.frame(DATA, END_STREAM, stream, b"what is asked");
    }
}

/// Returns the bytes that the server receives if `sent` arrives in pieces that end at `cuts`.
async fn given(sent: &[u8], cuts: &[usize]) -> Vec<u8> {
    let (mut theirs, ours) = tokio::io::duplex(1 << 20);
    let mut ours = Lenient::new(ours);
    let mut got = Vec::new();
    let mut at = 0;
    for cut in cuts.iter().copied().chain([sent.len()]) {
        theirs.write_all(&sent[at..cut]).await.unwrap();
        at = cut;
        // Read everything available before more arrives.
        let mut some = [0; 7];
        while let Ok(read) =
            tokio::time::timeout(std::time::Duration::ZERO, ours.read(&mut some)).await
        {
            got.extend_from_slice(&some[..read.unwrap()]);
        }
    }
    drop(theirs);
    ours.read_to_end(&mut got).await.unwrap();
    got
}

/// Returns authority and path of each request, and the frames of all other kinds.
fn understood(given: &[u8]) -> (Vec<(String, String)>, Vec<Vec<u8>>) {
    let mut rest = given.strip_prefix(GREETING).unwrap();
    let (mut requests, mut others) = (Vec::new(), Vec::new());
    let (mut decoder, mut block) = (Decoder::new(), Vec::new());
    while let Some(frame) = Frame::read(rest) {
        let (whole, behind) = rest.split_at(HEAD + frame.length);
        rest = behind;
        if !matches!(frame.kind, HEADERS | CONTINUATION) {
            others.push(whole.to_vec());
            continue;
        }
        block.extend_from_slice(frame.fragment(&whole[HEAD..]).unwrap());
        if frame.flags & END_HEADERS != 0 {
            let fields = decoder.decode(&std::mem::take(&mut block)).unwrap();
            let of = |wanted: &[u8]| {
                let field = fields.iter().find(|(name, _)| name == wanted);
                String::from_utf8(field.unwrap().1.clone()).unwrap()
            };
            requests.push((of(b":authority"), of(b":path")));
        }
    }
    assert!(rest.is_empty());
    (requests, others)
}

#[tokio::test]
async fn path_authority_is_replaced_by_host() {
    let mut client = Client::new();
    let socket = b"/run/user/0/rye/ryed.sock";
    client.asks(1, socket, b"/rye.v1.Runs/List");
    // The client's encoder now refers to its table.
    client.asks(3, socket, b"/rye.v1.Runs/Get");
    client.asks(5, b"%2Frun%2Fryed.sock", b"/rye.v1.Runs/List");
    client.asks(7, b"a.host:80", b"/rye.v1.Runs/List");
    let given = given(&client.sent, &[]).await;
    let (requests, others) = understood(&given);
    let requests: Vec<_> = requests
        .iter()
        .map(|(authority, path)| (authority.as_str(), path.as_str()))
        .collect();
    let list = "/rye.v1.Runs/List";
    let expected = [
        ("localhost", list),
        ("localhost", "/rye.v1.Runs/Get"),
        ("localhost", list),
        ("a.host:80", list),
    ];
    assert_eq!(requests, expected);
    assert_eq!(others.len(), 5);
    assert!(others[1..].iter().all(|frame| frame.ends_with(b"asked")));
}

#[tokio::test]
async fn valid_or_unreadable_bytes_pass_unchanged() {
    let mut fine = Client::new();
    fine.asks(1, b"localhost", b"/a");
    // After a valid first request the filter inspects nothing.
    fine.asks(3, b"/a/path", b"/b");
    let mut no_block = Client::new();
    no_block.frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff, 0xff]);
    let mut interrupted = Client::new();
    let block = interrupted.block(b"/a/path", b"/a");
    interrupted.frame(HEADERS, 0, 1, &block[..4]);
    interrupted.frame(DATA, 0, 1, b"in between");
    let mut continued = Client::new();
    continued.frame(CONTINUATION, END_HEADERS, 1, &block);
    let mut long = Client::new();
    long.frame(HEADERS, 0, 1, &block);
    for _ in 0..5 {
        long.frame(CONTINUATION, 0, 1, &vec![0; MOST_FRAME]);
    }
    // Refers to the same long field many times.
    let mut much = Client::new();
    let mut block = much.block(&b"x".repeat(3000), b"/a");
    block.extend(b"\xbf".repeat(60_000));
    let parts: Vec<_> = block.chunks(MOST_FRAME - 100).map(<[u8]>::to_vec).collect();
    for (number, part) in parts.iter().enumerate() {
        let flags = if number + 1 == parts.len() {
            END_HEADERS
        } else {
            0
        };
        much.frame(
            if number == 0 { HEADERS } else { CONTINUATION },
            flags,
            1,
            part,
        );
    }
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3);
    for sent in [
        &fine.sent,
        &no_block.sent,
        &interrupted.sent,
        &continued.sent,
        &long.sent,
        &much.sent,
        &http,
    ] {
        assert_eq!(given(sent, &[]).await, *sent);
    }
}

#[tokio::test]
async fn padding_priority_and_continuations_are_parsed() {
    let mut client = Client::new();
    let block = client.block(b"/a/path", b"/a");
    let (first, rest) = block.split_at(5);
    let padded = [&[3_u8], &[0; 5][..], first, &[0; 3]].concat();
    client.frame(HEADERS, PADDED | PRIORITY | END_STREAM, 1, &padded);
    client.frame(CONTINUATION, 0, 1, &[]);
    client.frame(CONTINUATION, END_HEADERS, 1, rest);
    let given = given(&client.sent, &[]).await;
    let (requests, _) = understood(&given);
    assert_eq!(requests, [("localhost".to_owned(), "/a".to_owned())]);
    let settings = GREETING.len() + HEAD;
    let head = Frame::read(&given[settings..]).unwrap();
    assert_eq!(head.flags, END_HEADERS | END_STREAM);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunk_boundaries_do_not_matter(
        cuts in proptest::collection::btree_set(0_usize..180, 0..40),
        authority in prop_oneof![Just("/a/path"), Just("localhost"), Just("a b")],
    ) {
        let mut client = Client::new();
        client.asks(1, authority.as_bytes(), b"/a");
        client.asks(3, authority.as_bytes(), b"/b");
        let cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut < client.sent.len()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (whole, cut) = runtime.block_on(async {
            (given(&client.sent, &[]).await, given(&client.sent, &cuts).await)
        });
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn arbitrary_bytes_never_panic_or_add_output(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let sent = [Client::new().sent, bytes].concat();
        let given = runtime.block_on(given(&sent, &[30]));
        prop_assert!(given.len() <= sent.len() + 300);
    }
}
