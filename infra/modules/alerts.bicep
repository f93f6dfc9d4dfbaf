// The alerts of alerts.json, over what the service itself measures.

@description('What the names of the alerts start with.')
param name string

@description('Whether they are on.')
param enabled bool

@description('The Application Insights component.')
param applicationInsightsId string

@description('Who is told. Empty: nobody.')
param actionGroupId string

@description('The Azure region.')
param location string

@description('Tags of the alerts.')
param tags object

var rules = loadJsonContent('../alerts.json')

resource alerts 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [for rule in rules: {
  name: '${name}-${rule.name}'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: rule.displayName
    description: rule.description
    severity: rule.severity
    enabled: enabled
    // A component that was made a moment ago may not know its tables yet, and a query of them would be refused. Our
    // tests check the queries instead.
    skipQueryValidation: true
    scopes: [
      applicationInsightsId
    ]
    evaluationFrequency: rule.evaluationFrequency
    windowSize: rule.windowSize
    overrideQueryTimeRange: empty(rule.overrideQueryTimeRange) ? null : rule.overrideQueryTimeRange
    autoMitigate: rule.autoMitigate
    criteria: {
      allOf: [
        {
          query: rule.query
          timeAggregation: rule.timeAggregation
          metricMeasureColumn: rule.metricMeasureColumn
          operator: rule.operator
          threshold: rule.threshold
          failingPeriods: {
            numberOfEvaluationPeriods: rule.failingPeriods.numberOfEvaluationPeriods
            minFailingPeriodsToAlert: rule.failingPeriods.minFailingPeriodsToAlert
          }
        }
      ]
    }
    actions: {
      actionGroups: empty(actionGroupId) ? [] : [
        actionGroupId
      ]
    }
  }
}]
