// What every site has on every plan: its settings, and no basic authentication.

@description('Name of the site.')
param siteName string

@description('The settings, without BaseUrl and the connection string of Application Insights.')
@secure()
param settings object

@description('BaseUrl. Empty: https:// and the host name that Azure gave the site.')
param baseUrl string

@description('The Application Insights component.')
param applicationInsightsName string

resource site 'Microsoft.Web/sites@2025-03-01' existing = {
  name: siteName
}

resource component 'Microsoft.Insights/components@2020-02-02' existing = {
  name: applicationInsightsName
}

// Neither FTP nor deployment accepts a user name and password. Deployment needs a token of
// Microsoft Entra ID, as az and azd send it. A publish profile does not work.
//
// These two resources and the settings are set one after the other: a site may respond 409 to a
// change while another one is under way.
resource ftpPolicy 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = {
  parent: site
  name: 'ftp'
  properties: {
    allow: false
  }
}

resource scmPolicy 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = {
  parent: site
  name: 'scm'
  properties: {
    allow: false
  }
  dependsOn: [
    ftpPolicy
  ]
}

// The host name may have a random part, so it is known only after the site exists. Settings within
// the site resource itself could not refer to it.
var ownUrl = empty(baseUrl) ? 'https://${site.properties.defaultHostName}' : baseUrl

resource appSettings 'Microsoft.Web/sites/config@2025-03-01' = {
  parent: site
  name: 'appsettings'
  properties: union(settings, {
    BaseUrl: ownUrl
    APPLICATIONINSIGHTS_CONNECTION_STRING: component.properties.ConnectionString
  })
  dependsOn: [
    scmPolicy
  ]
}

@description('The host name that Azure gave the site.')
output defaultHostName string = site.properties.defaultHostName

@description('What the TXT record asuid.DOMAIN of a domain has to have.')
output domainVerification string = site.properties.customDomainVerificationId

@description('BaseUrl, as it was set.')
output baseUrl string = ownUrl
