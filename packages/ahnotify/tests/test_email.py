"""E-mail against a real SMTP server: TLS, refusals, unknown ends, no injected headers."""

from __future__ import annotations

import email
import email.policy
import ssl
from datetime import UTC, datetime, timedelta
from email.header import decode_header, make_header

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from ahnotify.errors import (
    ConfigurationError,
    PermanentProviderError,
    TemporaryProviderError,
    UnknownOutcomeError,
)
from ahnotify.providers._addresses import is_address
from ahnotify.providers.base import Content, OutgoingMessage, TargetContact
from ahnotify.providers.email import EmailProvider, EmailSettings, _line, build_mail, mail_bytes

ANN = TargetContact(contact_id="c-1", address="ann@acme.example")
HEADERS = {
    "content-type",
    "mime-version",
    "from",
    "to",
    "subject",
    "date",
    "message-id",
    "auto-submitted",
    "x-auto-response-suppress",
}


def outgoing(subject="Server web-1 is silent", text="body", html="<p>body</p>"):
    return OutgoingMessage(
        reference="ref-1",
        tenant_id="acme",
        notification_uuid="n-1",
        content=Content(subject=subject, text=text, html=html),
    )


@pytest.fixture
def provider(clock):
    return EmailProvider(clock=clock)


@pytest.mark.anyio
async def test_a_mail_has_what_mail_programs_need(provider, settings, sink, clock):
    result = await provider.send(outgoing(text="Grüße", html="<p>Grüße</p>"), ANN, settings)
    (mail,) = sink.mails
    assert result.provider_message_id == mail["Message-ID"] == "<ref-1@hub.example>"
    assert mail["From"] == "Access Hub <alerts@hub.example>"
    assert mail["To"] == "ann@acme.example"
    assert mail["Date"].datetime == datetime.fromtimestamp(clock.time(), tz=UTC).replace(
        microsecond=0
    )
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_body(("plain",)).get_content() == "Grüße"
    assert mail.get_body(("html",)).get_content() == "<p>Grüße</p>"
    assert sink.envelopes[0].mail_from == "alerts@hub.example"
    assert {name.lower() for name in mail} == HEADERS


INJECTIONS = [
    "A 💩 subject=?UTF-8?Q?=0A?=Bcc: x@example.com",
    "a\r\nBcc: x@example.com",
    "a\nBcc: x@example.com\n\nbody",
    "a\rBcc: x@example.com",
    "nul\x00 and \u2028 and \u2029 and \x85Bcc: x@example.com",
    "=?UTF-8?B?DQpCY2M6IHhAZXhhbXBsZS5jb20=?=",
    "\ud800 half of a pair",
    "x" * 5_000,
    "ж" * 500,
    "",
]


@pytest.mark.anyio
@pytest.mark.parametrize("subject", INJECTIONS)
async def test_no_subject_makes_a_header_of_its_own(provider, settings, sink, subject):
    """N11."""
    await provider.send(outgoing(subject=subject), ANN, settings)
    (mail,) = sink.mails
    assert {name.lower() for name in mail} == HEADERS
    assert len(mail.keys()) == len(HEADERS)
    assert sink.envelopes[0].rcpt_tos == ["ann@acme.example"]


SETTINGS = EmailSettings(host="h", sender="alerts@hub.example")


@given(st.text(max_size=300))
@example("=?utf-8?q?=0d=0aBcc:_x?=")
@example("a =?x?= b")
def test_any_subject_is_one_line_that_reads_back(subject):
    mail = build_mail(
        outgoing(subject=subject),
        recipient="ann@acme.example",
        settings=SETTINGS,
        message_id="<r@h>",
        date=datetime(2026, 1, 1, tzinfo=UTC),
    )
    raw = mail_bytes(mail)
    head = raw.split(b"\n\n", 1)[0]
    assert all(len(line) <= 998 for line in head.split(b"\n"))
    parsed = email.message_from_bytes(raw, policy=email.policy.compat32)
    read = str(make_header(decode_header(parsed["Subject"] or "")))
    assert " ".join(read.split()) == " ".join(_line(subject).split())
    assert {name.lower() for name, _ in parsed.items()} == HEADERS
    assert len(parsed.keys()) == len(HEADERS)


@pytest.mark.anyio
async def test_the_raw_mail_can_be_read_as_it_is(provider, settings, sink):
    text = "Server web-1 is silent.\n\nFrom now on: nothing.\n.\n"
    await provider.send(outgoing(text=text, html="<p>Grüße, web-1</p>"), ANN, settings)
    raw = sink.envelopes[0].content
    assert text.replace("\n", "\r\n").encode() in raw
    assert b"<p>Gr=C3=BC=C3=9Fe, web-1</p>" in raw
    assert b"base64" not in raw


@given(st.text(max_size=300) | st.text(alphabet="aF \t\r\n.\x0c\x85\u2028\ud800é=", max_size=2_000))
@example("From here\n.\nFrom there")
@example("x" * 999)
@example("\x00")
def test_any_body_reads_back_in_lines_that_mail_may_have(text):
    mail = build_mail(
        outgoing(text=text, html=None),
        recipient="ann@acme.example",
        settings=SETTINGS,
        message_id="<r@h>",
        date=datetime(2026, 1, 1, tzinfo=UTC),
    )
    raw = mail_bytes(mail)
    assert raw.isascii()
    assert all(len(line) <= 998 for line in raw.split(b"\n"))
    parsed = email.message_from_bytes(raw, policy=email.policy.compat32)
    read = parsed.get_payload(decode=True).decode(parsed.get_content_charset())
    wanted = text.replace("\x00", "").encode("utf-8", "replace").decode()
    assert read.splitlines() == wanted.splitlines()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        ("550 5.1.1 no such user", PermanentProviderError, "recipient_550"),
        ("450 4.2.0 greylisted, try later", TemporaryProviderError, "recipient_450"),
    ],
)
async def test_a_refused_recipient_is_told_apart(provider, settings, sink, answer, error, code):
    sink.refuse_recipients["ann@acme.example"] = answer
    with pytest.raises(error) as caught:
        await provider.send(outgoing(), ANN, settings)
    assert caught.value.code == code
    assert sink.mails == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "error"),
    [("554 5.7.1 spam", PermanentProviderError), ("452 4.3.1 full", TemporaryProviderError)],
)
async def test_refused_data_is_known_not_to_be_delivered(provider, settings, sink, answer, error):
    sink.refuse_data.append(answer)
    with pytest.raises(error):
        await provider.send(outgoing(), ANN, settings)


@pytest.mark.anyio
async def test_a_connection_dropped_after_data_is_an_unknown_end(provider, settings, sink):
    """N13."""
    sink.drop_after_data = 1
    with pytest.raises(UnknownOutcomeError) as caught:
        await provider.send(outgoing(), ANN, settings)
    assert caught.value.reference == "<ref-1@hub.example>"
    await provider.send(outgoing(), ANN, settings)
    first, second = sink.mails
    assert first["Message-ID"] == second["Message-ID"]


@pytest.mark.anyio
async def test_a_server_without_starttls_gets_nothing_in_clear(provider, settings, sink, smtp_port):
    """N14."""
    strict = EmailSettings(
        host="127.0.0.1", port=smtp_port, sender="alerts@hub.example", local_hostname="hub"
    )
    assert strict.tls == "starttls"
    with pytest.raises(PermanentProviderError) as caught:
        await provider.send(outgoing(), ANN, strict)
    assert caught.value.code == "tls_unavailable"
    assert sink.mails == []


@pytest.mark.anyio
async def test_a_server_that_is_down_is_a_temporary_error(provider, free_port):
    down = EmailSettings(
        host="127.0.0.1", port=free_port(), tls="plain", sender="alerts@hub.example"
    )
    with pytest.raises(TemporaryProviderError) as caught:
        await provider.send(outgoing(), ANN, down)
    assert caught.value.code == "connect"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 as (certificate file, key file)."""
    import ipaddress

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def tls_port(sink, certificate, free_port):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)

    def login(server, session, envelope, mechanism, data):
        good = (data.login, data.password) == (b"user", b"right")
        return AuthResult(success=good, handled=False)

    controller = Controller(
        sink,
        hostname="127.0.0.1",
        port=free_port(),
        tls_context=context,
        require_starttls=True,
        authenticator=login,
        auth_required=True,
    )
    controller.start()
    yield controller.port
    controller.stop()


def tls_settings(port, certificate, **changes) -> EmailSettings:
    values = {
        "host": "127.0.0.1",
        "port": port,
        "sender": "alerts@hub.example",
        "local_hostname": "hub",
        "username": "user",
        "password": "right",
        "ca_file": str(certificate[0]),
        "timeout_seconds": 5,
    }
    return EmailSettings(**(values | changes))


@pytest.mark.anyio
async def test_starttls_with_login_delivers(provider, sink, tls_port, certificate):
    await provider.send(outgoing(), ANN, tls_settings(tls_port, certificate))
    assert len(sink.mails) == 1


@pytest.mark.anyio
async def test_a_certificate_that_nobody_vouches_for_gets_nothing(
    provider, sink, tls_port, certificate
):
    with pytest.raises(TemporaryProviderError):
        await provider.send(outgoing(), ANN, tls_settings(tls_port, certificate, ca_file=None))
    assert sink.mails == []


@pytest.mark.anyio
async def test_a_wrong_password_is_permanent_and_not_told(provider, sink, tls_port, certificate):
    wrong = tls_settings(tls_port, certificate, password="s3cret-word")
    with pytest.raises(PermanentProviderError) as caught:
        await provider.send(outgoing(), ANN, wrong)
    assert caught.value.code == "auth_535"
    assert "s3cret-word" not in str(caught.value) + repr(wrong)


@pytest.mark.anyio
async def test_a_contact_that_is_no_address_never_reaches_the_server(provider, settings, sink):
    for address in ("ann", "a@b\r\nRCPT TO:<x@y>", "<a@b>", "a b@c", "a@", "ä@b.example"):
        with pytest.raises(PermanentProviderError):
            await provider.send(
                outgoing(), TargetContact(contact_id="c", address=address), settings
            )
    assert sink.envelopes == []


@pytest.mark.parametrize("address", ["a@b", "first.last+tag@sub.example.com", "x_y@a-b.example"])
def test_usual_addresses_are_taken(address):
    assert is_address(address)


@pytest.mark.parametrize("address", ["", "a..b@c", ".a@c", "a@-c", "a@c..d", "a@" + "x" * 300])
def test_odd_addresses_are_refused(address):
    assert not is_address(address)


@pytest.mark.parametrize(
    "changes", [{"tls": "none"}, {"sender": "nobody"}, {"tls": "plain", "username": "u"}]
)
def test_wrong_settings_are_refused(changes):
    with pytest.raises(ConfigurationError):
        EmailSettings(**({"host": "h", "sender": "a@b.example"} | changes))
