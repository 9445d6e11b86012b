"""The page in a real Chromium: draw, cancel, reload, two tabs, offline, keys, both languages, a phone's width.

Needs playwright (tools/setup_tests.sh) and Debian's chromium; skipped with a line that says so where they are absent.
Screenshots go to $DANQING_BUILD/page.
"""
import shutil as _shutil

from harness import *

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    sync_playwright = None
CHROMIUM = _shutil.which("chromium") or _shutil.which("chromium-browser")
MISSING = "playwright is not installed (tools/setup_tests.sh)" if not sync_playwright else "chromium is not installed" if not CHROMIUM else ""


class PageFiles(ServerTest):
    """What must hold of the page without a browser."""

    def test_files_and_words(self):
        import re
        html = self.server.get("/").body.decode()
        for name in re.findall(r'(?:src|href)="(/[^"]+)"', html):
            self.assertEqual(self.server.get(name).status, 200, name)
        words = self.server.get("/js/i18n.js").body.decode()
        english, chinese = words.split("\n  zh: {")
        keys = set(re.findall(r'data-i18n(?:-label)?="(\w+)"', html))
        for key in keys:
            self.assertRegex(english, rf"\b{key}: ")
            self.assertRegex(chinese, rf"\b{key}: ")
        ids = re.findall(r' id="([\w-]+)"', html)
        self.assertEqual(len(ids), len(set(ids)))
        for module in ("compose", "jobs", "gallery", "monitor", "main", "api"):
            text = self.server.get(f"/js/{module}.js").body.decode()
            for used in re.findall(r'\$\("([\w-]+)"\)', text):
                self.assertIn(used, ids, module)
            for word in re.findall(r'\bt\("(\w+)"', text):
                self.assertRegex(chinese, rf"\b{word}: ", module)
            self.assertNotRegex(text, r"https?://(?!www\.w3\.org)")
        for label in re.findall(r'<label[^>]* for="([\w-]+)"', html):
            self.assertIn(label, ids)
        for control in re.findall(r'<(?:input|textarea|select)[^>]*? id="([\w-]+)"', html):
            self.assertTrue(f'for="{control}"' in html or re.search(rf'<label[^>]*>(?:(?!</label>).)*id="{control}"', html, re.S), control)


@unittest.skipIf(MISSING, f"skipped: {MISSING}")
class Page(OwnServerTest):
    def setUp(self):
        super().setUp()
        self.playwright = sync_playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        self.addCleanup(self.playwright.stop)
        self.addCleanup(self.browser.close)

    def page(self, server, language="en-US", width=1200):
        context = self.browser.new_context(locale=language, viewport={"width": width, "height": 900})
        page = context.new_page()
        page.set_default_timeout(60000)
        self.requests = []
        page.on("request", lambda r: self.requests.append(r.url))
        self.errors = []
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.goto(server.url)
        page.wait_for_function("document.getElementById('model').options.length > 0")
        return page

    def shot(self, page, name):
        directory = pathlib.Path(os.environ.get("DANQING_BUILD", self.dir)) / "page"
        directory.mkdir(exist_ok=True)
        page.screenshot(path=str(directory / f"{name}.png"))

    def draw(self, page, prompt="a red apple", steps=3):
        page.fill("#prompt", prompt)
        page.fill("#steps", str(steps))
        page.press("#prompt", "Control+Enter")

    def test_draw_and_look(self):
        s = self.serve()
        page = self.page(s)
        self.draw(page)
        page.wait_for_selector("#gallery li")
        page.click("#gallery button")
        expect(page.locator("#viewer-prompt")).to_have_text("a red apple")
        self.shot(page, "viewer")
        page.click("#use-again")
        expect(page.locator("#lock")).to_have_attribute("aria-pressed", "true")
        self.assertTrue(all(u.startswith((s.url, "data:", "blob:")) for u in self.requests))
        self.assertEqual(self.errors, [])

    def test_cancel_reload_and_two_tabs(self):
        s = self.serve()
        page = self.page(s)
        self.draw(page, steps=150)
        page.wait_for_selector("#jobs li")
        page.reload()
        page.wait_for_selector("#jobs li")  # the job went on
        other = page.context.new_page()
        other.goto(s.url)
        other.wait_for_selector("#jobs li .cancel")
        self.shot(page, "drawing")
        other.click("#jobs .cancel")
        page.wait_for_selector("#jobs li", state="detached")
        self.assertEqual(s.get("/v1/jobs").json()["data"][0]["status"], "cancelled")

    def test_offline(self):
        s = self.serve()
        page = self.page(s)
        s.stop()
        self.draw(page)
        expect(page.locator("#connection")).not_to_be_empty()

    def test_key(self):
        p = subprocess.run([PROGRAM, "serve", "--new-key", "anna"], capture_output=True, text=True, check=True)
        keys = self.dir / "keys"
        keys.write_text(p.stdout)
        s = self.serve("--api-key-file", keys)
        page = self.browser.new_page()
        page.goto(s.url)
        page.wait_for_selector("#key-dialog[open]")
        page.fill("#key", p.stderr.split(": ")[1].strip())
        page.click("#key-save")
        page.wait_for_function("document.getElementById('model').options.length > 0")
        self.draw(page)
        page.wait_for_selector("#gallery img")
        page.wait_for_function("document.querySelector('#gallery img').naturalWidth > 0")

    def test_chinese_on_a_phone(self):
        page = self.page(self.serve(), "zh-CN", 360)
        expect(page.locator("#draw")).to_have_text("绘制")
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 360)
        self.draw(page, "一根大香蕉")
        page.wait_for_selector("#gallery li")
        self.shot(page, "phone-zh")
        page.click("#language")
        expect(page.locator("#draw")).to_have_text("Draw")


if __name__ == "__main__":
    main()
