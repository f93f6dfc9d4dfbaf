package clicks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tiney/internal/clicks"
	"tiney/internal/testing/useragents"
)

// hostSuffix is what the Functions host appends.
const hostSuffix = " Azure-Functions-Host/4.1037.0.0"

const (
	chromeWindows = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Chrome/143.0.0.0 Safari/537.36"
	instagram = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6_2 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 " +
		"Instagram 398.0.0.32.74 (iPhone15,2; iOS 18_6_2; en_US; en; scale=3.00; 1179x2556; " +
		"IABMV/1; 788364114) NW/3 Safari/604.1"
	facebookAndroid = "Mozilla/5.0 (Linux; Android 15; SM-S918B Build/AP3A.240905.015.A2; wv) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Version/4.0 Chrome/142.0.7444.102 Mobile Safari/537.36 " +
		"[FB_IAB/FB4A;FBAV/537.0.0.48.76;FBPN/com.facebook.katana;]"
)

var bot = clicks.Agent{Bot: true, Browser: clicks.Other, System: clicks.Other, Device: clicks.Other}

func person(browser, system, device string) clicks.Agent {
	return clicks.Agent{Browser: browser, System: system, Device: device}
}

var agentTests = []struct {
	name, userAgent string
	want            clicks.Agent
}{
	{"Chrome on Windows", chromeWindows, person("Chrome", "Windows", "desktop")},
	{"Chrome on macOS", "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 " +
		"(KHTML, like Gecko) Chrome/143.0.0.0 Safari/537.36",
		person("Chrome", "macOS", "desktop")},
	{"Chrome on Linux", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/143.0.0.0 Safari/537.36",
		person("Chrome", "Linux", "desktop")},
	{"Chrome on ChromeOS", "Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, " +
		"like Gecko) Chrome/143.0.0.0 Safari/537.36",
		person("Chrome", "ChromeOS", "desktop")},
	{"Chrome on a phone", "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Chrome/143.0.0.0 Mobile Safari/537.36",
		person("Chrome", "Android", "mobile")},
	{"Chrome on a tablet", "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Chrome/143.0.0.0 Safari/537.36",
		person("Chrome", "Android", "tablet")},
	{"Chrome on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/143.0.7499.38 Mobile/15E148 Safari/604.1",
		person("Chrome", "iOS", "mobile")},
	{"Chrome on a Cubot", "Mozilla/5.0 (Linux; Android 9; CUBOT P30) AppleWebKit/537.36 (KHTML, " +
		"like Gecko) Chrome/138.0.0.0 Mobile Safari/537.36",
		person("Chrome", "Android", "mobile")},
	{"Chrome on a Cubot with an underscore",
		"Mozilla/5.0 (Linux; Android 7.0; CUBOT_X18_Plus) AppleWebKit/537.36 (KHTML, like Gecko) " +
			"Chrome/99.0.4844.88 Mobile Safari/537.36",
		person("Chrome", "Android", "mobile")},
	{"Chrome on a phone called edge",
		"Mozilla/5.0 (Linux; Android 13; motorola edge 30) AppleWebKit/537.36 (KHTML, like " +
			"Gecko) Chrome/114.0.0.0 Mobile Safari/537.36",
		person("Chrome", "Android", "mobile")},
	{"Chrome on FreeBSD", "Mozilla/5.0 (X11; FreeBSD amd64) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Chrome/142.0.0.0 Safari/537.36",
		person("Chrome", clicks.Other, "desktop")},
	{"Ecosia", "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/143.0.0.0 Mobile Safari/537.36 (Ecosia android@143.0.7499.34)",
		person("Chrome", "Android", "mobile")},

	{"Edge on Windows", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, " +
		"like Gecko) Chrome/143.0.0.0 Safari/537.36 Edg/143.0.0.0",
		person("Edge", "Windows", "desktop")},
	{"Edge on a phone", "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Chrome/143.0.0.0 Mobile Safari/537.36 EdgA/143.0.0.0",
		person("Edge", "Android", "mobile")},
	{"Edge on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6_2 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) EdgiOS/143.0.3650.43 Version/18.0 " +
		"Mobile/15E148 Safari/604.1",
		person("Edge", "iOS", "mobile")},
	{"the first Edge", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, " +
		"like Gecko) Chrome/70.0.3538.102 Safari/537.36 Edge/18.19042",
		person("Edge", "Windows", "desktop")},
	{"Edge on an Xbox", "Mozilla/5.0 (Windows NT 10.0; Win64; x64; Xbox; Xbox One) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edge/44.18363.8131",
		person("Edge", "Windows", "desktop")},
	{"Edge on a Windows phone", "Mozilla/5.0 (Windows Phone 10.0; Android 6.0.1; Microsoft; " +
		"Lumia 950) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/52.0.2743.116 Mobile " +
		"Safari/537.36 Edge/15.15254",
		person("Edge", clicks.Other, "mobile")},

	{"Firefox on Windows", "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:146.0) Gecko/20100101 " +
		"Firefox/146.0", person("Firefox", "Windows", "desktop")},
	{"Firefox on macOS", "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:146.0) Gecko/20100101 " +
		"Firefox/146.0", person("Firefox", "macOS", "desktop")},
	{"Firefox on Linux", "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:146.0) Gecko/20100101 " +
		"Firefox/146.0", person("Firefox", "Linux", "desktop")},
	{"Firefox on a phone", "Mozilla/5.0 (Android 15; Mobile; rv:146.0) Gecko/146.0 Firefox/146.0",
		person("Firefox", "Android", "mobile")},
	{"Firefox on a tablet", "Mozilla/5.0 (Android 14; Tablet; rv:146.0) Gecko/146.0 Firefox/146.0",
		person("Firefox", "Android", "tablet")},
	{"Firefox on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) FxiOS/146.0 Mobile/15E148 Safari/604.1",
		person("Firefox", "iOS", "mobile")},

	{"Safari on macOS", "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Version/26.1 Safari/605.1.15",
		person("Safari", "macOS", "desktop")},
	{"Safari on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 Mobile/15E148 Safari/604.1",
		person("Safari", "iOS", "mobile")},
	{"Safari on an iPad", "Mozilla/5.0 (iPad; CPU OS 18_6 like Mac OS X) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
		person("Safari", "iOS", "tablet")},

	{"Opera on Windows", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, " +
		"like Gecko) Chrome/142.0.0.0 Safari/537.36 OPR/126.0.0.0",
		person("Opera", "Windows", "desktop")},
	{"Opera on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1 " +
		"OPT/6.2.0",
		person("Opera", "iOS", "mobile")},
	{"Opera GX on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1 " +
		"OPX/2.8.2",
		person("Opera", "iOS", "mobile")},
	{"Opera Mini in an Android window",
		"Mozilla/5.0 (Linux; U; Android 14; SM-A155F Build/UP1A.231005.007; wv) " +
			"AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/142.0.7444.102 Mobile " +
			"Safari/537.36 OPR/98.0.2254.80",
		person("Opera", "Android", "mobile")},
	{"Opera Mini", "Opera/9.80 (Android; Opera Mini/36.2.2254/191.273; U; en) Presto/2.12.423 " +
		"Version/12.16", person("Opera", "Android", "mobile")},
	{"Opera before Chromium", "Opera/9.80 (Windows NT 6.1; WOW64) Presto/2.12.388 Version/12.18",
		person("Opera", "Windows", "desktop")},

	{"Samsung Internet on a phone",
		"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) " +
			"SamsungBrowser/29.0 Chrome/136.0.0.0 Mobile Safari/537.36",
		person("Samsung Internet", "Android", "mobile")},
	{"Samsung Internet on a tablet",
		"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) " +
			"SamsungBrowser/29.0 Chrome/136.0.0.0 Safari/537.36",
		person("Samsung Internet", "Android", "tablet")},
	{"Samsung Internet on a television",
		"Mozilla/5.0 (SMART-TV; LINUX; Tizen 7.0) AppleWebKit/537.36 (KHTML, like Gecko) " +
			"SamsungBrowser/4.0 Chrome/94.0.4606.31 TV Safari/537.36",
		person("Samsung Internet", "Linux", clicks.Other)},

	{"Brave on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.6 Mobile/15E148 Safari/604.1 Brave",
		person(clicks.Other, "iOS", "mobile")},
	{"DuckDuckGo on macOS", "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.6 Safari/605.1.15 Ddg/26.6",
		person(clicks.Other, "macOS", "desktop")},
	{"Yandex Browser", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, " +
		"like Gecko) Chrome/140.0.0.0 YaBrowser/25.10.0.0 Safari/537.36",
		person(clicks.Other, "Windows", "desktop")},
	{"Vivaldi", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/142.0.0.0 Safari/537.36 Vivaldi/7.7.3851.52",
		person(clicks.Other, "Linux", "desktop")},
	{"Whale", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/140.0.0.0 Whale/4.34.340.19 Safari/537.36",
		person(clicks.Other, "Windows", "desktop")},
	{"a television of LG", "Mozilla/5.0 (Web0S; Linux/SmartTV) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Chrome/120.0.6099.270 Safari/537.36 WebAppManager",
		person("Chrome", "Linux", clicks.Other)},
	{"an iPod", "Mozilla/5.0 (iPod touch; CPU iPhone OS 15_8 like Mac OS X) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Version/15.6 Mobile/15E148 Safari/604.1",
		person("Safari", "iOS", "mobile")},
	{"Silk on a Fire tablet", "Mozilla/5.0 (Linux; Android 11; KFTRWI) AppleWebKit/537.36 " +
		"(KHTML, like Gecko) Silk/142.3.1 like Chrome/142.0.7444.102 Safari/537.36",
		person(clicks.Other, "Android", "tablet")},
	{"a Kindle", "Mozilla/5.0 (X11; U; Linux armv7l like Android; en-us) AppleWebKit/531.2+ " +
		"(KHTML, like Gecko) Version/5.0 Safari/533.2+ Kindle/3.0+",
		person(clicks.Other, "Android", "tablet")},
	{"a PlayStation", "Mozilla/5.0 (PlayStation; PlayStation 5/12.00) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Version/18.0 Safari/605.1.15",
		person(clicks.Other, clicks.Other, clicks.Other)},
	{"Internet Explorer 11", "Mozilla/5.0 (Windows NT 6.1; WOW64; Trident/7.0; Tablet PC 2.0; " +
		"rv:11.0) like Gecko", person(clicks.Other, "Windows", "desktop")},
	{"Internet Explorer that is compatible",
		"Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.1; Trident/6.0)",
		person(clicks.Other, "Windows", "desktop")},
	{"Internet Explorer on a Windows phone",
		"Mozilla/5.0 (Mobile; Windows Phone 8.1; Android 4.0; ARM; Trident/7.0; Touch; rv:11.0; " +
			"IEMobile/11.0; NOKIA; Lumia 520) like iPhone OS 7_0_3 Mac OS X AppleWebKit/537 " +
			"(KHTML, like Gecko) Mobile Safari/537",
		person(clicks.Other, clicks.Other, "mobile")},

	{"Instagram on an iPhone", instagram, person(clicks.Other, "iOS", "mobile")},
	{"Facebook on an Android phone", facebookAndroid, person(clicks.Other, "Android", "mobile")},
	{"Snapchat on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.6.1 Mobile/15E148 " +
		"Snapchat/14.25.0.48 (like Safari/8624.5.1.10.3, panda)",
		person(clicks.Other, "iOS", "mobile")},
	{"the Google app on an iPad", "Mozilla/5.0 (iPad; CPU OS 18_6 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) GSA/439.4.980558000 Mobile/15E148 Safari/604.1",
		person(clicks.Other, "iOS", "tablet")},
	{"WeChat on Android", "Mozilla/5.0 (Linux; Android 14; 23127PN0CC Build/UKQ1.230804.001; wv) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/130.0.6723.103 Mobile " +
		"Safari/537.36 XWEB/1300333 MMWEBSDK/20241202 MicroMessenger/8.0.56.2800 WeChat/arm64 " +
		"Weixin NetType/WIFI Language/zh_CN ABI/arm64",
		person(clicks.Other, "Android", "mobile")},
	{"TikTok on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 musical_ly_40.1.0 JsSdk/2.0 " +
		"NetType/WIFI Channel/App Store ByteLocale/en Region/US isDarkMode/0 WKWebView/1 " +
		"RevealType/Dialog",
		person(clicks.Other, "iOS", "mobile")},
	{"Teams on Windows", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, " +
		"like Gecko) Teams/1.7.00 Chrome/112.0.5615.204 Electron/24.6.2 Safari/537.36",
		person(clicks.Other, "Windows", "desktop")},

	{"Facebook on an Android phone, without a browser's name",
		"[FBAN/FB4A;FBAV/567.1.0.52.74;FBBV/1003893689;FBDM/{density=3.0,width=1080,height=2340};" +
			"FBLC/nl_NL;FBRV/1012267334;FBCR/NL KPN;FBMF/samsung;FBBD/samsung;" +
			"FBPN/com.facebook.katana;FBDV/SM-S921B;FBSV/16;FBOP/1;FBCA/arm64-v8a:;]",
		person(clicks.Other, "Android", "mobile")},
	{"Facebook on a Cubot in Botswana",
		"[FBAN/FB4A;FBAV/570.0.0.24.72;FBCR/Orange Botswana;FBMF/CUBOT;FBBD/CUBOT;" +
			"FBPN/com.facebook.katana;FBDV/CUBOT_X18;FBSV/11;FBOP/1;FBCA/armeabi-v7a:armeabi;]",
		person(clicks.Other, "Android", "mobile")},
	{"Messenger on an Android phone", "[FBAN/Orca-Android;FBAV/331.0.0.15.119;" +
		"FBPN/com.facebook.orca;FBLC/de_DE;FBBV/1;FBCR/o2 - de+;FBMF/Google;FBDV/Pixel 8;FBSV/15;]",
		person(clicks.Other, "Android", "mobile")},
	{"Facebook on an iPhone, without a browser's name", "[FBAN/FBIOS;FBAV/538.0.0.53.77;" +
		"FBBV/808389416;FBDV/iPhone14,7;FBMD/iPhone;FBSN/iOS;FBSV/18.6.2;FBSS/3;FBCR/;FBID/phone;" +
		"FBLC/en_US;FBOP/80]", person(clicks.Other, "iOS", "mobile")},
	{"Facebook on an iPad", "Mozilla/5.0 (iPad; CPU OS 18_6 like Mac OS X) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Mobile/15E148 [FBAN/FBIOS;FBAV/538.0.0.53.77;FBDV/iPad13,4;FBMD/iPad;" +
		"FBSN/iPadOS;FBSV/18.6;FBSS/2;FBID/tablet;FBLC/en_US;FBOP/5]",
		person(clicks.Other, "iOS", "tablet")},
	{"Messenger in a window of Android", "Mozilla/5.0 (Linux; Android 11; RMX1931 " +
		"Build/RKQ1.200928.002; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 " +
		"Chrome/93.0.4577.82 Mobile Safari/537.36 [FB_IAB/Orca-Android;FBAV/331.0.0.15.119;]",
		person(clicks.Other, "Android", "mobile")},
	{"Instagram on a Pixel", "Mozilla/5.0 (Linux; Android 8.1.0; Pixel 2 Build/OPM2.171026.006.G1; " +
		"wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/85.0.4183.81 Mobile " +
		"Safari/537.36 Instagram 157.0.0.37.120 Android (27/8.1.0; 420dpi; 1080x1794; " +
		"Google/google; Pixel 2; walleye; walleye; en_US; 242168941)",
		person(clicks.Other, "Android", "mobile")},
	{"Threads on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/22F76 Barcelona 382.0.0.23.84 (iPhone15,3; " +
		"iOS 18_5; de_DE; de; scale=3.00; 1290x2796; 743821203)",
		person(clicks.Other, "iOS", "mobile")},
	{"Snapchat on Android", "Mozilla/5.0 (Linux; Android 13; I2011 Build/TP1A.220624.014; wv) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/125.0.6422.54 Mobile " +
		"Safari/537.36 Snapchat/12.89.0.40 (I2011; Android 13#eng.compil.20240430.095616#33; gzip; )",
		person(clicks.Other, "Android", "mobile")},
	{"Pinterest on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 [Pinterest/iOS]",
		person(clicks.Other, "iOS", "mobile")},
	{"Pinterest on Android", "Mozilla/5.0 (Linux; Android 14; SM-A546B Build/UP1A.231005.007; wv) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/142.0.7444.102 Mobile " +
		"Safari/537.36 [Pinterest/Android]", person(clicks.Other, "Android", "mobile")},
	{"Line on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 Safari Line/15.8.1",
		person(clicks.Other, "iOS", "mobile")},
	{"Line on Android", "Mozilla/5.0 (Linux; Android 14; SO-53D Build/68.1.A.2.223; wv) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/136.0.7103.60 Mobile " +
		"Safari/537.36 Line/15.7.1/IAB", person(clicks.Other, "Android", "mobile")},
	{"KakaoTalk on Android", "Mozilla/5.0 (Linux; Android 14; SM-S921N Build/UP1A.231005.007; wv) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/136.0.7103.60 Mobile " +
		"Safari/537.36;KAKAOTALK 2411380", person(clicks.Other, "Android", "mobile")},
	{"Naver on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 NAVER(inapp; search; 2000; 12.12.3; " +
		"15PRO)", person(clicks.Other, "iOS", "mobile")},
	{"WeChat on Windows", "Mozilla/5.0 (Windows NT 10.0; WOW64) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Chrome/116.0.0.0 Safari/537.36 NetType/WIFI MicroMessenger/7.0.20.1781(0x6700143B) " +
		"WindowsWechat(0x63090c33) XWEB/11581 Flue", person("Chrome", "Windows", "desktop")},
	{"X on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/22F76 Twitter for iPhone/11.2",
		person(clicks.Other, "iOS", "mobile")},
	{"LinkedIn on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 [LinkedInApp]/9.31.1",
		person(clicks.Other, "iOS", "mobile")},
	{"TikTok on Android", "Mozilla/5.0 (Linux; Android 8.1.0; CPH1901 Build/OPM1.171019.026; wv) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/91.0.4472.120 Mobile " +
		"Safari/537.36  trill_200005 JsSdk/1.0 NetType/WIFI Channel/googleplay AppName/trill " +
		"app_version/20.0.5 ByteLocale/id-ID ByteFullLocale/id-ID Region/ID BytedanceWebview/d8a21c6",
		person(clicks.Other, "Android", "mobile")},
	{"Microsoft's news on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4_1 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML,like Gecko) Version/17.4.1 Mobile/15E148 Safari/605.1.15 " +
		"NewsSapphire/1.0.420507003", person("Safari", "iOS", "mobile")},
	{"Telegram on Android", "Mozilla/5.0 (Linux; Android 14; Pixel 8 Build/AP2A.240805.005; wv) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/127.0.6533.103 Mobile " +
		"Safari/537.36 Telegram-Android/11.1.3 (Google Pixel 8; Android 14; SDK 34; HIGH)",
		person(clicks.Other, "Android", "mobile")},

	{"TikTok, in advance", "Mozilla/5.0 (Linux; Android 12; SM-A326U) AppleWebKit/537.36 (KHTML, " +
		"like Gecko) Chrome/120.0.0.0 Mobile Safari/537.36 thirdLandingPageFeInfra/1.0", bot},
	{"TikTok, in advance, on an iPhone", "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) " +
		"AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 thirdLandingPageFeInfra", bot},
	{"a preview of Snapchat", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like " +
		"Gecko) Chrome/120.0 Safari/537.36 Snap URL Preview Service; bot; snapchat; " +
		"+https://developers.snap.com/robots", bot},
	{"a program of Facebook's app", "Dalvik/2.1.0 (Linux; U; Android 14; SM-S921B " +
		"Build/UP1A.231005.007) [FBAN/FB4A;FBAV/106.0.0.26.68;FBPN/com.facebook.katana;]", bot},
	{"a bot in the words of Facebook's app", "[FBAN/FB4A;FBAV/567.1.0.52.74;FBDV/Headless;]", bot},
	{"Facebook's words elsewhere", "curl/8.17.0 [FBAN/FB4A;]", bot},
	{"nothing", "", bot},
	{"the Functions host itself", strings.TrimSpace(hostSuffix), bot},
	{"curl", "curl/8.17.0", bot},
	{"a preview of WhatsApp", "WhatsApp/2.23.20.0", bot},
	{"Mozilla and nothing else", "Mozilla/5.0", bot},
	{"no engine", "Mozilla/5.0 (Windows NT 10.0; Win64; x64)", bot},
	{"lower case", strings.ToLower(chromeWindows), bot}, // no browser writes it like this
	{"Googlebot on a phone", "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) " +
		"AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0.0.0 Mobile Safari/537.36 " +
		"(compatible; Googlebot/2.1; +http://www.google.com/bot.html)", bot},
	{"a preview of iMessage", "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_11_1) " +
		"AppleWebKit/601.2.4 (KHTML, like Gecko) Version/9.0.1 Safari/601.2.4 " +
		"facebookexternalhit/1.1 Facebot Twitterbot/1.0", bot},
	{"headless Chrome", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"HeadlessChrome/143.0.0.0 Safari/537.36", bot},
	{"Word, before it opens the browser",
		"Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 10.0; Win64; x64; Trident/7.0; .NET4.0C; " +
			".NET4.0E; ms-office; MSOffice 16)", bot},
	{"a bot that ends at the limit", chromeWindows +
		strings.Repeat(" ", 512-len(chromeWindows)-len("bot")) + "bot", bot},
	{"a bot that says so beyond the limit", chromeWindows +
		strings.Repeat(" ", 512-len(chromeWindows)-len("bo")) + "bot",
		person("Chrome", "Windows", "desktop")},
}

func TestParseAgent(t *testing.T) {
	for _, test := range agentTests {
		t.Run(test.name, func(t *testing.T) {
			if got := clicks.ParseAgent(test.userAgent); got != test.want {
				t.Errorf("%q is %+v, want %+v", test.userAgent, got, test.want)
			}
		})
	}
}

func TestBotsAreRecognised(t *testing.T) {
	bots, err := useragents.Bots("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(bots) != 2118 {
		t.Errorf("%d samples, want 2,118", len(bots))
	}
	var missed []string
	for _, b := range bots {
		if !clicks.ParseAgent(b).Bot {
			missed = append(missed, b)
		}
	}
	// Five of the missed samples come from people: from apps that show pages in a window of their
	// own, and from editors.
	if recognised := len(bots) - len(missed); recognised < 2109 {
		t.Errorf("%d bots are recognised, want 2,109; missed:\n%s", recognised,
			strings.Join(missed, "\n"))
	}
}

// TestPeopleAreNoBots also checks that each device is the one that the collectors of the samples
// give, and that most browsers are among those that are counted by name.
func TestPeopleAreNoBots(t *testing.T) {
	people, err := useragents.People("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(people) != 952 {
		t.Errorf("%d samples, want 952", len(people))
	}
	unlisted := 0
	for _, p := range people {
		got := clicks.ParseAgent(p.UserAgent)
		if got.Bot || got.System == clicks.Other || got.Device != p.Device {
			t.Errorf("%q is %+v, want a person's on a %s", p.UserAgent, got, p.Device)
		}
		if got.Browser == clicks.Other {
			unlisted++
		}
	}
	if unlisted > 80 { // the Google app, Brave, DuckDuckGo, Yandex
		t.Errorf("%d of %d browsers are unknown", unlisted, len(people))
	}
}

var hostTests = []struct{ name, userAgent, want string }{
	{"a browser's", chromeWindows + hostSuffix, chromeWindows},
	{"none", hostSuffix[1:], ""},
	{"none, and a space", hostSuffix, ""},
	{"a client that says it too", "a" + hostSuffix + hostSuffix, "a" + hostSuffix},
	{"not forwarded", chromeWindows, chromeWindows},
	{"not at the end", "a" + hostSuffix + " b", "a" + hostSuffix + " b"},
	{"part of a word", "x" + hostSuffix[1:], "x" + hostSuffix[1:]},
	{"part of a long word", strings.Repeat("x", 100) + hostSuffix[1:], strings.Repeat("x", 100) +
		hostSuffix[1:]},
	{"part of a word that fills what is looked at", strings.Repeat("x", 99) + hostSuffix[1:] +
		strings.Repeat("0", 64-len(hostSuffix[1:])),
		strings.Repeat("x", 99) + hostSuffix[1:] + strings.Repeat("0", 64-len(hostSuffix[1:]))},
	{"nothing at all", "", ""},
}

// Some of these User-Agents share an entry of the table of recent ones, and overwrite each other.
func TestAgentsAreNotMistakenForEachOther(t *testing.T) {
	bots, err := useragents.Bots("../..")
	if err != nil {
		t.Fatal(err)
	}
	people, err := useragents.People("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := bots
	for _, p := range people {
		all = append(all, p.UserAgent)
	}
	first := map[string]clicks.Agent{}
	for range 10 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, userAgent := range all {
			got := clicks.ParseAgent(userAgent)
			if want, seen := first[userAgent]; seen && got != want {
				t.Fatalf("%q is %+v, and was %+v", userAgent, got, want)
			}
			first[userAgent] = got
		}
	}
}

func TestStripHost(t *testing.T) {
	for _, test := range hostTests {
		t.Run(test.name, func(t *testing.T) {
			if got := clicks.StripHost(test.userAgent); got != test.want {
				t.Errorf("StripHost(%q) = %q, want %q", test.userAgent, got, test.want)
			}
		})
	}
}

func FuzzParseAgent(f *testing.F) {
	for _, test := range agentTests {
		f.Add(test.userAgent)
	}
	for _, test := range hostTests {
		f.Add(test.userAgent)
	}
	browsers := []string{"Chrome", "Edge", "Firefox", "Safari", "Opera", "Samsung Internet",
		clicks.Other}
	systems := []string{"Windows", "macOS", "Linux", "Android", "iOS", "ChromeOS", clicks.Other}
	devices := []string{"desktop", "mobile", "tablet", clicks.Other}
	f.Fuzz(func(t *testing.T, userAgent string) {
		got := clicks.ParseAgent(userAgent)
		if !slices.Contains(browsers, got.Browser) || !slices.Contains(systems, got.System) ||
			!slices.Contains(devices, got.Device) ||
			got.Bot && got != bot {
			t.Errorf("%q is %+v", userAgent, got)
		}
		forwarded := userAgent + hostSuffix
		if stripped := clicks.StripHost(forwarded); stripped != userAgent {
			t.Errorf("%q is stripped to %q", forwarded, stripped)
		}
		if with := clicks.ParseAgent(forwarded); with != got {
			t.Errorf("%q is %+v, and forwarded %+v", userAgent, got, with)
		}
		if stripped := clicks.ParseAgent(clicks.StripHost(userAgent)); stripped != got {
			t.Errorf("%q is %+v, and stripped %+v", userAgent, got, stripped)
		}
	})
}

func BenchmarkParseAgent(b *testing.B) {
	for _, test := range []struct {
		name, userAgent string
		bot             bool
	}{
		{"Chrome", chromeWindows, false},
		{"Instagram", instagram, false},
		{"Googlebot", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
			true},
		// 4 KiB of text that almost matches a rule
		{"hostile", "Mozilla/5.0 " + strings.Repeat("compatibl", 450), true},
	} {
		for _, different := range []int{1, 16384} { // 16384 are more than are remembered
			agents := make([]string, different)
			for i := range agents {
				agents[i] = strings.Replace(test.userAgent, " ", fmt.Sprintf(" %d", i), 1)
			}
			b.Run(fmt.Sprintf("%s/different=%d", test.name, different), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if clicks.ParseAgent(agents[i%different]).Bot != test.bot {
						b.Fatal(test.userAgent)
					}
				}
			})
		}
	}
}

func BenchmarkStripHost(b *testing.B) {
	forwarded := chromeWindows + hostSuffix
	b.ReportAllocs()
	for b.Loop() {
		if len(clicks.StripHost(forwarded)) != len(chromeWindows) {
			b.Fatal("not stripped")
		}
	}
}
