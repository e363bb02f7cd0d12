"""Serve the documentation as HTML, without a key, like the API reference."""

from typing import Any

from litestar import Request, Response, Router, get
from litestar.enums import MediaType
from litestar.params import FromPath
from litestar.response import Redirect

from app.docs.rendering import HOME, PAGES, content_security_policy, render_page
from app.errors import NotFound

# Pages change with a release only; a browser asks again after five minutes and mostly gets a 304.
CACHE = "public, max-age=300"


@get("/", include_in_schema=False)
async def home() -> Redirect:
    """Lead to the documentation."""
    return Redirect("/docs", status_code=302)


@get("/docs", include_in_schema=False)
async def show_first_page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the first page of the documentation."""
    return _respond(request, HOME)


@get("/docs/{page:str}", include_in_schema=False)
async def show_page(request: Request[Any, Any, Any], page: FromPath[str]) -> Response[bytes]:
    """Return a page of the documentation or raise NotFound."""
    if page not in PAGES:
        raise NotFound("There is no such page; /docs lists all pages.", code="page_not_found")
    return _respond(request, page)


def _respond(request: Request[Any, Any, Any], name: str) -> Response[bytes]:
    page = render_page(name)
    headers = {
        "ETag": page.etag,
        "Cache-Control": CACHE,
        "Content-Security-Policy": content_security_policy(),
        "Referrer-Policy": "no-referrer",
    }
    if page.etag in request.headers.get("if-none-match", ""):
        return Response(b"", status_code=304, headers=headers, media_type=MediaType.HTML)
    return Response(page.html, headers=headers, media_type=MediaType.HTML)


router = Router(path="/", route_handlers=[home, show_first_page, show_page])
