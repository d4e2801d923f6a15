"""E-mail by SMTP.

One message to one recipient in one SMTP transaction, so that a refusal belongs to exactly one
person. TLS is required unless the settings say `plain`. The steps of the dialogue decide what a
failure means: everything before DATA is known not to be delivered; a connection that ends in DATA
is unknown.

Header fields are built without the standard library's structured parser, which decodes encoded
words inside a subject and lets a line break out of them: every value is either printable ASCII
without `=?` or one encoded word sequence over the whole value.

Bodies stay readable in the raw file: plain ASCII goes as it is (7bit), anything else as
quoted-printable; never base64.
"""

from __future__ import annotations

import asyncio
import io
import re
import ssl
from datetime import UTC, datetime
from email.charset import QP, Charset
from email.generator import BytesGenerator
from email.header import Header
from email.message import Message
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.utils import format_datetime
from typing import Final

import anyio
import attrs

from ahnotify._extras import missing_extra
from ahnotify.clock import SystemClock
from ahnotify.errors import (
    ConfigurationError,
    PermanentProviderError,
    TemporaryProviderError,
    UnknownOutcomeError,
)
from ahnotify.providers._addresses import is_address
from ahnotify.providers.base import OutgoingMessage, ProviderResult, TargetContact
from ahwire import Clock

try:
    import aiosmtplib
except ModuleNotFoundError as error:
    raise missing_extra("the e-mail provider", "email", error) from error

__all__ = ["EmailProvider", "EmailSettings"]

_SUBJECT_CHARS_MAX: Final = 200
_ANSWER_CHARS_MAX: Final = 200
#: Controls, and the characters that some program takes for the end of a line.
_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_PLAIN_HEADER: Final = re.compile(r"[\x20-\x7e]*")
#: What may travel as 7bit: lines of printable ASCII, not longer than RFC 5322 2.1.1 has it.
_PLAIN_BODY: Final = re.compile(r"(?:[\t\x20-\x7e]{0,998}(?:\n|\Z))*")


@attrs.frozen(kw_only=True)
class EmailSettings:
    """How to reach the mail server.

    Attributes:
        host: The server.
        port: Its port; 587 for STARTTLS, 465 for TLS from the start.
        tls: `starttls`, `tls` (from the start), or `plain`: no TLS at all, only for a server on
            this machine.
        sender: The address in From and in the envelope.
        sender_name: The name beside it.
        username: For AUTH, else None. Never sent without TLS.
        password: For AUTH.
        local_hostname: What we call ourselves in EHLO, else the machine's name.
        message_id_domain: The right side of Message-ID; the sender's domain by default.
        timeout_seconds: For each step of the dialogue.
        ca_file: Certificates to trust instead of the system's.
    """

    host: str
    port: int = 587
    tls: str = "starttls"
    sender: str
    sender_name: str = "Access Hub"
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    local_hostname: str | None = None
    message_id_domain: str | None = None
    timeout_seconds: float = 10
    ca_file: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.tls not in ("starttls", "tls", "plain"):
            raise ConfigurationError(f"email tls is {self.tls!r}; give starttls, tls or plain")
        if not is_address(self.sender):
            raise ConfigurationError(
                f"email sender {self.sender!r} is not an address; give name@domain"
            )
        if self.tls == "plain" and self.username is not None:
            raise ConfigurationError("email username needs TLS; give tls = starttls or tls")


class EmailProvider:
    """A `Provider` on SMTP."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    async def send(
        self, message: OutgoingMessage, contact: TargetContact, settings: EmailSettings
    ) -> ProviderResult:
        """See `Provider.send`. The provider_message_id is the Message-ID."""
        if not is_address(contact.address):
            raise PermanentProviderError("bad_address", "the contact is not an e-mail address")
        message_id = self._message_id(message, settings)
        mail = build_mail(
            message,
            recipient=contact.address,
            settings=settings,
            message_id=message_id,
            date=datetime.fromtimestamp(self._clock.time(), tz=UTC),
        )
        client = self._client(settings)
        try:
            await self._open(client, settings)
            await self._envelope(client, settings.sender, contact.address)
            answer = await self._data(client, mail_bytes(mail), message_id)
            await self._quit(client)
        finally:
            await self._hang_up(client)
        return ProviderResult(provider_message_id=message_id, answer=answer)

    @staticmethod
    def _message_id(message: OutgoingMessage, settings: EmailSettings) -> str:
        domain = settings.message_id_domain or settings.sender.rpartition("@")[2]
        return f"<{message.reference}@{domain}>"

    @staticmethod
    def _client(settings: EmailSettings) -> aiosmtplib.SMTP:
        context = None
        if settings.tls != "plain":
            context = ssl.create_default_context(cafile=settings.ca_file)
        return aiosmtplib.SMTP(
            hostname=settings.host,
            port=settings.port,
            use_tls=settings.tls == "tls",
            # False for the other two: STARTTLS is our own step, so that its absence has its own
            # name.
            start_tls=False,
            tls_context=context,
            local_hostname=settings.local_hostname,
            timeout=settings.timeout_seconds,
        )

    async def _open(self, client: aiosmtplib.SMTP, settings: EmailSettings) -> None:
        try:
            await client.connect()
            await client.ehlo()
            if settings.tls == "starttls":
                if not client.supports_extension("starttls"):
                    raise PermanentProviderError(
                        "tls_unavailable",
                        "the mail server offers no STARTTLS; nothing was sent in clear",
                    )
                await client.starttls()
                await client.ehlo()
            if settings.username is not None:
                await client.login(settings.username, settings.password or "")
        except aiosmtplib.SMTPAuthenticationError as error:
            raise _refusal("auth", error.code, "the mail server refused the login") from error
        except aiosmtplib.SMTPResponseException as error:
            raise _refusal("connect", error.code, error.message) from error
        except ssl.SSLCertVerificationError as error:
            raise TemporaryProviderError("tls_certificate", error.verify_message) from error
        except (aiosmtplib.SMTPException, OSError) as error:
            # No word of the message was said yet, so a later attempt is safe.
            raise TemporaryProviderError("connect", type(error).__name__) from error

    @staticmethod
    async def _envelope(client: aiosmtplib.SMTP, sender: str, recipient: str) -> None:
        try:
            await client.mail(sender)
            await client.rcpt(recipient)
        except aiosmtplib.SMTPRecipientRefused as error:
            raise _refusal("recipient", error.code, error.message) from error
        except aiosmtplib.SMTPResponseException as error:
            raise _refusal("envelope", error.code, error.message) from error
        except (aiosmtplib.SMTPException, OSError) as error:
            raise TemporaryProviderError("envelope", type(error).__name__) from error

    @staticmethod
    async def _data(client: aiosmtplib.SMTP, body: bytes, message_id: str) -> str:
        try:
            response = await client.data(body)
        except aiosmtplib.SMTPResponseException as error:
            # An answer is an answer: the server says that it did not take the message.
            raise _refusal("data", error.code, error.message) from error
        except (aiosmtplib.SMTPException, OSError) as error:
            raise UnknownOutcomeError(
                "data_lost",
                f"{type(error).__name__} after DATA began; the server may have taken the message",
                reference=message_id,
            ) from error
        return f"{response.code} {response.message}"[:_ANSWER_CHARS_MAX]

    @staticmethod
    async def _hang_up(client: aiosmtplib.SMTP) -> None:
        """Close the connection now, however the dialogue ended.

        A TLS connection that is only closed waits for the server's good-bye, up to half a minute,
        and keeps its socket meanwhile.
        """
        transport = client.transport
        client.close()
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()
        # The event loop closes the socket in its next turns.
        for _ in range(2):
            await anyio.lowlevel.cancel_shielded_checkpoint()

    @staticmethod
    async def _quit(client: aiosmtplib.SMTP) -> None:
        """Say good-bye; the message is delivered whatever the server answers."""
        with anyio.move_on_after(1):
            try:
                # Not quit(): it closes in its own way and forgets the transport.
                await client.execute_command(b"QUIT")
            except (aiosmtplib.SMTPException, OSError):
                return


def _refusal(step: str, code: int, text: str) -> TemporaryProviderError | PermanentProviderError:
    """4xx can pass, 5xx cannot (RFC 5321 4.2.1); anything else is not SMTP and may pass."""
    detail = _BREAKS.sub(" ", text)[:_ANSWER_CHARS_MAX]
    name = f"{step}_{code}"
    if 500 <= code <= 599:
        return PermanentProviderError(name, detail)
    return TemporaryProviderError(name, detail)


def build_mail(
    message: OutgoingMessage,
    *,
    recipient: str,
    settings: EmailSettings,
    message_id: str,
    date: datetime,
) -> Message:
    """The mail with exactly our header fields, whatever the content holds."""
    content = message.content
    mail: Message = _part(content.text, "plain")
    if content.html is not None:
        multipart = MIMEMultipart("alternative")
        multipart.attach(mail)
        multipart.attach(_part(content.html, "html"))
        mail = multipart
    # Encoded always: a phrase with specials would need quoting, an encoded word needs none.
    name = Header(_line(settings.sender_name), "utf-8", header_name="From").encode()
    mail["From"] = f"{name} <{settings.sender}>"
    mail["To"] = recipient
    mail["Subject"] = _header(content.subject)
    mail["Date"] = format_datetime(date)
    mail["Message-ID"] = message_id
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    return mail


def mail_bytes(mail: Message) -> bytes:
    """The mail as it is sent; a line that begins with `From ` stays as it is."""
    buffer = io.BytesIO()
    BytesGenerator(buffer, mangle_from_=False).flatten(mail)
    return buffer.getvalue()


def _part(text: str, subtype: str) -> MIMEText:
    # NUL is not allowed in mail, and lone surrogates are no text; what else is odd is encoded and
    # cannot leave its part.
    body = text.replace("\x00", "").encode("utf-8", "replace").decode()
    if _PLAIN_BODY.fullmatch(body):
        return MIMEText(body, subtype, "us-ascii")
    charset = Charset("utf-8")
    charset.body_encoding = QP
    return MIMEText(body, subtype, charset)  # type: ignore[arg-type]  # a Charset is documented


def _header(value: str) -> str:
    """One ASCII header value that a parser reads back as `value` without its line breaks."""
    line = _line(value)
    if _PLAIN_HEADER.fullmatch(line) and "=?" not in line:
        return line
    return Header(line, "utf-8", header_name="Subject").encode()


def _line(value: str) -> str:
    # Lone surrogates cannot be encoded; they are no text.
    text = _BREAKS.sub(" ", value).encode("utf-8", "replace").decode()
    return text.strip()[:_SUBJECT_CHARS_MAX]
