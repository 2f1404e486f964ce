// The page of MCP's Inspector in Chromium: connects, runs a cell, accepts the form, which is printed, and waits for the
// result. Arguments: playwright-core, the page's URL, the transport's name on the page, the cell, a text of its result, a
// file for a picture; and for a cell that takes longer than its call, of which cell_result then gets the result: seconds.
"use strict";
const [playwright, url, transport, code, text, shot, seconds] = process.argv.slice(2);
const { chromium } = require(playwright);

(async () => {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  const execute = () => page.getByRole("button", { name: "Execute Tool" }).click();
  page.setDefaultTimeout(30000);
  try {
    await page.goto(url);
    await page.getByText(transport, { exact: true }).first().waitFor();
    await page.getByRole("switch").first().click({ force: true });
    await page.getByText("Connected", { exact: true }).waitFor();
    await page.locator("label", { hasText: /^Tools$/ }).click();
    await page.getByText("execute_ipython_cell").first().click();
    await page.getByRole("textbox", { name: "code" }).fill(code);
    // The page fills in the default, 120 s, after which a longer cell is interrupted.
    if (seconds) await page.getByRole("textbox", { name: "timeout" }).fill(String(3 * seconds));
    await execute();
    const form = page.getByRole("dialog");
    await form.getByText("Elicitation Request").waitFor({ timeout: 30000 + 1000 * (seconds || 0) });
    console.log(await form.innerText());
    await form.getByRole("textbox", { name: "Decision" }).click();
    await page.getByRole("option").first().click();
    await form.getByRole("button", { name: "Submit" }).click();
    await form.waitFor({ state: "hidden" });
    if (seconds) {
      await page.getByText("cell_result", { exact: true }).first().click();
      await page.getByRole("textbox", { name: "execution_id" }).fill("cell-1");
      await execute();
    }
    await page.getByText(text).first().waitFor();
    if (seconds) console.log(await page.innerText("body"));
  } finally {
    await page.screenshot({ path: shot });
    await browser.close();
  }
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
