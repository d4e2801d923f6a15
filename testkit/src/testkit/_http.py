"""One question over HTTP, for services that answer so."""

import http.client

__all__ = ["get"]

_TIMEOUT_SECONDS = 10.0


def get(host: str, port: int, path: str) -> bytes:
    """Return the body of the answer.

    Raises:
        OSError: There was no answer, or it has an error's status; the text says which.
    """
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    asked = f"http://{host}:{port}{path}"
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"{asked}: {error!r}") from error
    finally:
        connection.close()
    if response.status >= http.client.BAD_REQUEST:
        raise ConnectionError(f"{asked} answered {response.status}: {body[:200]!r}")
    return body
